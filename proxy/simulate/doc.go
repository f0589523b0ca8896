// Package simulate evaluates what a configuration would have done with past requests. It reads
// access logs, orders their lines by time, passes them to proxy.Replay for one or two
// configurations, and reports the result of each limit as text, as JSON, or as a self-contained
// HTML page.
//
// A line is Weir's own JSON, JSON of another server, or the common or combined log format of Apache
// and nginx. Data that a line does not have is unknown, not absent from the request: see
// proxy.LoggedRequest. JSON fields are identified by the names that servers usually use (names.go),
// or by names that the operator configures.
//
// Reading a line does not allocate: lines are held in reused buffers, and all strings of a request
// share the memory of its line. A line is held until no earlier one is expected: 65,536 lines, or
// those of one minute, whichever is less. A line that is even later is evaluated at the time of the
// previous one, and counted as late.
package simulate
