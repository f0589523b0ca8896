// Package route matches requests to routes. It does no I/O and does not depend on
// limits, on forwarding, or on the HTTP server.
//
// Request.Normalize normalizes a request target. A Table maps patterns to values; Find returns the
// value of the most specific pattern that a Request matches.
//
// # Precedence
//
// If several patterns match, they are compared by the following criteria, in
// this order; the first difference decides:
//
//   - The host: an exact host, then a wildcard such as *.example.com (longer ones
//     first), then any host.
//   - The path, segment by segment from the left: literal text, then a parameter with a
//     regular expression, {id:[0-9]+}, then one without, {id}, then * for the rest.
//   - The method: an explicit method before any method. A pattern for GET does not match HEAD.
//   - The number of conditions on header fields and query parameters.
//   - The order of the entries.
//
// A lookup takes a few map accesses and a walk through a tree of the patterns that
// share a prefix. Its cost does not depend on the number of patterns, and it normally
// does not allocate (BenchmarkMatch).
//
// # Normalization
//
// The path is normalized first (normalize.go, RFC 3986 section 6.2.2): escapes that are not
// needed are decoded, the others have upper-case digits, dot segments are removed, and
// repeated slashes are merged. That path is matched, and keys are read from it. What is
// forwarded has the escapes of reserved characters that the client wrote, and its repeated
// slashes if the pattern keeps them, unless a server that tells the two apart could find
// another guarded pattern by it, or another key (spell). A target that servers interpret in
// different ways is ErrTarget: a backslash, a control character, an unescaped #, or a dot
// segment next to an escaped slash. A host is a name of letters, digits, hyphens, dots and
// underscores, or an address, and one port (normalize.go). In the absolute form the scheme is
// http, or https on a TLS connection (request.go).
//
// # Lenient reading
//
// Some servers are lenient: they decode a path twice, accept overlong UTF-8 escapes, cut
// a segment at a semicolon, or drop spaces and dots at its end. A path that such a server
// would match to another pattern, or read with another value of a key, is ErrTarget: /a;x
// could be taken for /a (normalize.go). So is one whose last segment has a dot where a server
// that cuts a format such as .json off would read another value of a key, unless the
// parameter has a regular expression that admits the dot (descriptor.go). The rest of a path,
// *, is read as it is.
//
// # Case, trailing slash and method
//
// Many frameworks treat /Send and /send/ like /send, HEAD like GET, or post like POST.
// A request that matches an unguarded pattern, but that such a framework would treat as
// a request of a guarded one, is matched to the guarded pattern, so that a client
// cannot avoid a limit this way. If both patterns are guarded, it is ErrTarget
// (router.go, pattern.go). A path or method that is spelled exactly as in a pattern
// always matches that pattern.
//
// # Escaped slashes and query conditions
//
// Some servers treat an escaped slash as part of a segment, others as a separator: it is
// ErrTarget unless the pattern says that its upstream keeps it. If a pattern has
// conditions on the query, an ambiguous query is ErrQuery: a repeated parameter, a
// parameter name that some servers take for another, or a form in the body (request.go).
package route
