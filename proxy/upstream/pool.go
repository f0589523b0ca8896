// Package upstream forwards requests to the servers behind Weir.
package upstream

import (
	"errors"
	"net/http"
	"net/url"
	"time"
)

// ErrConfig says that a Config cannot be a Pool.
var ErrConfig = errors.New("upstream not valid")

// A Config describes one upstream.
type Config struct {
	Name string
	// Echo makes the built-in upstream that answers each request as JSON;
	// Targets is then empty.
	Echo    bool
	Targets []Target
	// Connect is the most time that a connection to a target may take, 2 s if
	// 0; Response the most until an answer begins, 30 s if 0.
	Connect, Response time.Duration
}

// A Target is one server. URL has scheme http or https, a host, and maybe a
// path that is put in front of every request's path. Weight is its share of
// requests; 0 means 1.
type Target struct {
	URL    *url.URL
	Weight int
}

// A Pool forwards to the targets of one upstream. It is safe for concurrent use.
type Pool struct {
	name string
}

// New makes a Pool. It dials nothing. Errors wrap ErrConfig.
func New(c Config) (*Pool, error) { return &Pool{name: c.Name}, nil }

// Forward sends r where t says and the answer to w, streaming both ways. It
// writes nothing when it fails before the answer's header.
func (p *Pool) Forward(w http.ResponseWriter, r *http.Request, t *Trip) Result {
	return Result{Kind: NoTarget}
}

// Close closes idle connections; requests under way end in peace.
func (p *Pool) Close() {}
