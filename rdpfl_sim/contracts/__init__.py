"""What the components of every kind promise; plug-ins are held to it."""
