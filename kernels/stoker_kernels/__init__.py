"""The ops that Stoker's engine runs on a device: plain torch references, and faster implementations behind one dispatch."""
