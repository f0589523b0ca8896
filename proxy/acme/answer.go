package acme

import (
	"net"
	"net/http"
	"slices"
	"strings"
)

// ServeChallenge answers an http-01 challenge (RFC 8555 section 8.3), and reports whether
// r was one. Challenges are not limited and not logged. A request over TLS, or
// for a challenge that no process with the same storage has started, is not
// handled.
func (m *Manager) ServeChallenge(w http.ResponseWriter, r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, ChallengePrefix) && r.TLS == nil && m.isManaged(r.Host) && m.issuer.HandleHTTPChallenge(w, r)
}

// ChallengePrefix is the path prefix of http-01 challenges.
const ChallengePrefix = "/.well-known/acme-challenge/"

// isManaged reports whether host is a managed domain; only then is the storage read.
func (m *Manager) isManaged(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return slices.Contains(m.names, strings.ToLower(strings.TrimSuffix(host, ".")))
}
