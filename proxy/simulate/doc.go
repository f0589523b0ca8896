// Package simulate replays access logs: it reads them, sorts their lines by time, replays
// them with proxy.Replay through the stages of one or two configurations, and reports the
// decisions of each limit, as text, JSON, or a self-contained HTML page.
//
// A line is in Weir's own JSON format, in JSON of another server, or in the common or
// combined format of Apache and nginx. Data missing in a line is unknown, not absent from
// the request: see proxy.LoggedRequest. JSON fields are found by the usual names of servers
// (names.go), or by those given by the operator.
//
// Reading a line allocates nothing: buffers are reused, and all texts of a request point
// into its line. Lines are buffered until no earlier one can come: up to 65,536 lines or
// one minute, whichever is less. A line that is even later is replayed at the time of the
// previous line, and counted as late.
package simulate
