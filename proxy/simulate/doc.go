// Package simulate answers what a configuration would have done with requests that were
// served before: it reads access logs, brings their lines into the order of time, has
// proxy.Replay take them through the stages of one or two configurations, and reports
// what each limit would have said: as text, as JSON, or as one HTML page that needs
// nothing else.
//
// A line is Weir's own JSON, JSON of another server, or the common or combined format of
// Apache and nginx. What a line does not tell is unknown, not missing: see
// proxy.LoggedRequest. Lines of JSON are read by the names that servers usually give
// their fields (names.go), or by those that the operator says.
//
// Reading a line allocates nothing: lines wait in buffers that are used again, and all
// texts of a request point into its line. Lines wait until no earlier one can come: 65,536
// of them, or as many as came within a minute, whichever is less. One that is older even
// so is taken at the time of the line before, and counted as late.
package simulate
