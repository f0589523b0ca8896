package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	// requestTimeout bounds a request to a running weir, which may have to wait for other nodes.
	requestTimeout = time.Minute
	// maxResponse is the maximum length of a response in bytes.
	maxResponse = 64 << 20
)

// A Client is a client of the admin API. Its methods return a *Problem if the API responds with
// one; after other errors the outcome is unknown. It is safe for concurrent use.
type Client struct {
	Address string       // address of the admin listener: HOST:PORT or a URL
	Token   string       // may be empty
	HTTP    *http.Client // nil means http.DefaultClient
}

// Push makes all nodes serve a configuration, or none.
func (c Client) Push(ctx context.Context, p Push) (Pushed, error) {
	return post[Pushed](ctx, c, "/api/v1/push", p)
}

// Rollback makes all nodes serve an earlier configuration.
func (c Client) Rollback(ctx context.Context, r Rollback) (Pushed, error) {
	return post[Pushed](ctx, c, "/api/v1/rollback", r)
}

// Plan returns what would change if the node served a configuration.
func (c Client) Plan(ctx context.Context, p Push) (Plan, error) {
	return post[Plan](ctx, c, "/api/v1/plan", p)
}

// History returns the list of pushes.
func (c Client) History(ctx context.Context) (History, error) {
	return get[History](ctx, c, "/api/v1/history")
}

// Diff returns the changes of a generation.
func (c Client) Diff(ctx context.Context, generation int64) (Diff, error) {
	return get[Diff](ctx, c, "/api/v1/history/"+strconv.FormatInt(generation, 10))
}

// Healthz returns an error if the node is not alive.
func (c Client) Healthz(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base()+"/healthz", nil)
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	answer, err := c.client().Do(r)
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("healthcheck: %s", answer.Status)
	}
	return nil
}

// get sends a GET request.
func get[A any](ctx context.Context, c Client, path string) (A, error) {
	return send[A](ctx, c, call{http.MethodGet, path, nil})
}

// post sends body as JSON.
func post[A, B any](ctx context.Context, c Client, path string, body B) (A, error) {
	text, err := json.Marshal(body)
	if err != nil {
		var none A
		return none, fmt.Errorf("ask %s: %w", c.base(), err)
	}
	return send[A](ctx, c, call{http.MethodPost, path, text})
}

// A call is one request.
type call struct {
	method, path string
	body         []byte // JSON
}

func send[A any](ctx context.Context, c Client, call call) (into A, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, call.method, c.base()+call.path, bytes.NewReader(call.body)) // #nosec G704 -- the operator names the host
	if err != nil {
		return into, fmt.Errorf("ask %s: %w", c.base(), err)
	}
	r.Header.Set("Content-Type", "application/json")
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	answer, err := c.client().Do(r) // #nosec G704 -- as above
	if err != nil {
		return into, fmt.Errorf("ask a running weir: %w; name its admin listener with --admin", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxResponse))
	if err != nil {
		return into, fmt.Errorf("ask %s: %w", c.base(), err)
	}
	if answer.StatusCode != http.StatusOK {
		return into, errorOf(answer.Status, text)
	}
	if err := json.Unmarshal(text, &into); err != nil {
		return into, fmt.Errorf("ask %s: answer not understood: %w", c.base(), err)
	}
	return into, nil
}

// errorOf returns the problem in an error response.
func errorOf(status string, text []byte) error {
	p := &Problem{}
	if json.Unmarshal(text, p) != nil || p.Detail == "" { // the listener for requests answers so too
		return fmt.Errorf("a running weir answers %s; is this its admin listener?", status)
	}
	return p
}

func (c Client) client() *http.Client { return cmp.Or(c.HTTP, http.DefaultClient) }

// base returns the URL prefix of the API. A wildcard address is replaced by localhost.
func (c Client) base() string {
	if strings.Contains(c.Address, "://") {
		return strings.TrimSuffix(c.Address, "/")
	}
	host, port, err := net.SplitHostPort(c.Address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip.IsUnspecified()) {
		return "http://" + net.JoinHostPort("localhost", port)
	}
	return "http://" + strings.TrimSuffix(c.Address, "/")
}
