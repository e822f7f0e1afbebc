//! Streams, terminals, files and folders that fail: the run goes on, or says why not.
