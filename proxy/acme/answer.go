package acme

import (
	"net"
	"net/http"
	"slices"
	"strings"
)

// Answer answers the authority's questions by http-01 (RFC 8555 section 8.3), and
// reports whether r is one. They ask no limit, and no line is logged. A question
// that nobody here or in the same storage waits for is none, nor is one in TLS.
func (m *Manager) Answer(w http.ResponseWriter, r *http.Request) bool {
	return strings.HasPrefix(r.URL.Path, Challenges) && r.TLS == nil && m.isManaged(r.Host) && m.issuer.HandleHTTPChallenge(w, r)
}

// Challenges is where an authority asks.
const Challenges = "/.well-known/acme-challenge/"

// isManaged reports whether host is one of the names; only then is storage looked at.
func (m *Manager) isManaged(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return slices.Contains(m.names, strings.ToLower(strings.TrimSuffix(host, ".")))
}
