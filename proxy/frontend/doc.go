// Package frontend accepts client connections and passes their requests to a handler.
// It is independent of routes and limits.
//
// A [Server] accepts connections from any number of listeners (server.go), with or
// without TLS (handshake.go), and with the PROXY protocol from trusted load balancers
// (handshake.go). Package http1 serves HTTP/1.1, and package http2 serves HTTP/2. A handler
// that knows only net/http serves HTTP/1.1 alone.
//
// A client that resets most of its HTTP/2 requests (rapid reset) loses its connection,
// and further connections from its address are delayed (reset_tracker.go).
//
// [Certificates] come from files and from an [Issuer] (certificates.go). Their expiry
// times are exported as a metric (certificates.go). ACME challenges are served before any
// route (certificates.go).
//
// [Server.Drain] shuts a server down without losing a request (server.go,
// backlog_linux.go). It accepts the connections that are already in the backlog.
// Each response then announces the end of its connection, and idle connections are
// closed last.
package frontend
