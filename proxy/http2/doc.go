// Package http2 serves HTTP/2 to clients of a proxy (RFC 9113).
package http2
