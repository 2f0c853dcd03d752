"""Find the parameter value at which collaboration stops paying off: `rdpfl-sim breakdown`."""
