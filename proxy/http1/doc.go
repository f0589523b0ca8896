// Package http1 is HTTP/1.1 for a proxy: the side of a server, which reads
// requests, and the side of a client, which sends them on. It parses in place,
// allocates nothing per message, and refuses what two servers could read in two
// ways.
package http1
