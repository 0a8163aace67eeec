"""Commands that look at the attempts and the page of a run, and grade completions without one."""
