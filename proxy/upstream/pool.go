// Package upstream forwards requests to the servers behind Weir and brings
// their answers back, streaming both ways.
//
// A [Pool] keeps the connections of one upstream. [Pool.Forward] promises that
// the request arrives with its method, path, query, host and end-to-end fields
// as they were, that fields of one connection stay on it, that nobody outside
// can forge what Weir says of the client, that only WebSocket on a route that
// allows it leaves HTTP, and that an answer cut short looks cut to the client.
//
// It does not limit, match, log or word errors: a [Trip] goes in, a [Result]
// comes out. Nor does it retry, except that a request which certainly no target
// has seen, or an idempotent one without a body, is sent again when it ran into
// a kept connection that the target had closed in the meantime.
package upstream

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
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
	// 0; Response the most until an answer begins after the request was sent,
	// and the most that a target may take none of the request, 30 s if 0.
	Connect, Response time.Duration
	// TLS is how https targets are trusted, by the roots of the machine if nil.
	// It is not changed.
	TLS *tls.Config
	// Pseudonym is this process in Via, by which it knows requests that come
	// back to it. All pools of a process should have the same. When it is empty
	// the pool makes one up: "weir-" and 8 random hexadecimal digits.
	Pseudonym string
}

// A Target is one server. URL has scheme http or https, a host, and maybe a
// path that is put in front of every request's path. Weight is its share of
// requests, at most 1000; 0 means 1.
type Target struct {
	URL    *url.URL
	Weight int
}

// A Pool forwards to the targets of one upstream. It is safe for concurrent use.
type Pool struct {
	targets   []target
	rotation  *rotation
	transport roundTripper
	buffers   *buffers
	silence   *log.Logger
	pseudonym string
}

// A roundTripper sends one request and returns the header of its answer.
type roundTripper interface {
	http.RoundTripper
	CloseIdleConnections()
}

// New makes a Pool. It dials nothing. Errors wrap ErrConfig.
func New(c Config) (*Pool, error) {
	p := &Pool{buffers: newBuffers(), silence: log.New(io.Discard, "", 0), pseudonym: c.Pseudonym}
	if p.pseudonym == "" {
		p.pseudonym = newPseudonym()
	}
	if c.Connect < 0 || c.Response < 0 {
		return nil, fmt.Errorf("%w: %s: a timeout is negative", ErrConfig, c.Name)
	}
	if c.Echo {
		if len(c.Targets) > 0 {
			return nil, fmt.Errorf("%w: %s: either echo or targets", ErrConfig, c.Name)
		}
		p.targets, p.transport = []target{{name: "echo", scheme: "http", host: "echo"}}, echo{}
		p.rotation = newRotation([]int{1})
		return p, nil
	}
	weights := make([]int, 0, len(c.Targets))
	for _, from := range c.Targets {
		t, err := newTarget(from)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrConfig, c.Name, err)
		}
		p.targets = append(p.targets, t)
		weights = append(weights, max(from.Weight, 1))
	}
	if len(p.targets) == 0 {
		return nil, fmt.Errorf("%w: %s: no targets", ErrConfig, c.Name)
	}
	p.rotation = newRotation(weights)
	p.transport = newTransport(c)
	return p, nil
}

// newPseudonym makes a name that no other process has.
func newPseudonym() string {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return "weir-" + hex.EncodeToString(b[:])
}

// pick chooses the target of the next request, nil if there is none.
func (p *Pool) pick() *target { return &p.targets[p.rotation.next()] }

// Close closes idle connections; requests under way end in peace, and their
// connections are closed after them.
func (p *Pool) Close() { p.transport.CloseIdleConnections() }
