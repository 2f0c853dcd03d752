"""What components of every kind take and return; plug-ins are checked against it."""
