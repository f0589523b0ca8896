// Package route finds the route of a request: strings in, a value out. It knows nothing
// of limits, of forwarding, or of how a request has come in, and does no I/O.
//
// Request.Tidy brings a target into one spelling. A Table has patterns, and a value for each of
// them; Find returns the value of the most specific pattern that a Request matches.
//
// # Which pattern is found
//
// In this order, the first difference decides:
//
//   - The host: one that is written out, then *.example.com, the longer the earlier, then
//     any.
//   - The path, segment by segment from the left: plain text, then a parameter with an
//     expression, {id:[0-9]+}, then one without, {id}, then * for all that follows.
//   - The method: one that is named before any. A pattern of GET is not for HEAD.
//   - The number of conditions on header fields and parameters of the query.
//   - The order of the entries.
//
// A lookup is a few map accesses and a walk through a tree of the patterns that begin
// alike: it costs the same with ten patterns and with thousands, and on the usual path
// it allocates nothing (BenchmarkMatch).
//
// # One spelling
//
// What is matched is what is forwarded, in one spelling (tidy.go): what need not be
// escaped is not, what must be is in upper case, dot segments are resolved and doubled
// slashes are one (RFC 3986 section 6.2.2). A target that servers read in different ways
// has no such spelling and is ErrTarget: a backslash, a control character, a # that is
// not escaped, a dot segment beside a slash that is escaped. A host is a name of letters,
// digits, hyphens, dots and underscores, or an address, and one port (host.go). In the
// absolute form the scheme is http, or https where TLS is spoken (target.go).
//
// # Lenient reading
//
// Some servers forgive more: they decode twice, take an overlong escape, cut a segment at
// a semicolon, drop blanks and dots at its end. A path that such a server would take for
// another pattern's, or for one with another value of a key, is ErrTarget: /a;x for /a
// (lenient.go).
//
// # Careless frameworks
//
// Many tell neither /Send from /send nor /send/ from /send, answer HEAD as GET, or take
// post for POST. What they would take for a guarded pattern's, and what would have been
// found under one that is not, is found under the guarded one; between two guarded ones
// it is ErrTarget (stricter.go, fold.go). A path or a method that a pattern names as it
// was sent is that pattern's.
//
// # Slashes that are escaped, and queries that decide
//
// A slash that is escaped is part of a segment for some servers and ends it for others:
// it is ErrTarget unless the pattern says that its upstream keeps it. A query that decides
// and can be read in two ways is ErrQuery: a parameter that comes twice, one that some
// servers take for another, and a form in the body beside it (query.go).
package route
