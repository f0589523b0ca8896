// Package frontend takes connections in and gives their requests to a handler. It
// knows nothing of routes and limits.
//
// A Server accepts from any number of listeners (server.go), in plain or in TLS
// (handshake.go), with the PROXY protocol where the peer is a load balancer that is
// trusted (proxyproto.go). HTTP/1.1 is served by package http1, HTTP/2 by net/http,
// which is given the connections that speak it (handover.go). Whoever resets most
// of the requests that he sends over HTTP/2 loses his connection (connstate.go), and
// his next ones are delayed (offenders.go).
//
// Certificates come from files, and from an Issuer (certificates.go); until when they
// are good is a metric (expiry.go). What an authority asks over HTTP is answered before
// any route (challenges.go).
//
// Drain ends a server so that no request is lost (drain.go, backlog_linux.go): those who
// connect are let in first, each response says that its connection ends, and only then
// connections without a request are closed.
package frontend
