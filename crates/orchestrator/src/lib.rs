//! The shell around the engine: one worker per active update run.
