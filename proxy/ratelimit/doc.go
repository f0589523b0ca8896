// Package ratelimit makes Weir take the place of envoyproxy/ratelimit where a control plane starts that:
// it reads the environment that ratelimit has, and gets limits from an xDS server as ratelimit does.
//
// Promised: limits are those that convert.Convert makes of them. A configuration that cannot be served is
// refused with the reason (a NACK), and the one before is served on. While the xDS server cannot be
// reached, Weir serves what it got last.
package ratelimit
