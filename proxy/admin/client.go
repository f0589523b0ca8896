package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy/view"
)

const (
	// requestTimeout bounds a request to a running weir, which may have to wait for other nodes.
	requestTimeout = time.Minute
	// maxResponse is the maximum length of a response in bytes.
	maxResponse = 64 << 20
)

// A Client is a client of the admin API. Its methods, and Get and Post, return a *Problem if the API responds with
// one; after other errors the outcome is unknown. It is safe for concurrent use.
type Client struct {
	Address string       // address of the admin listener: HOST:PORT or a URL
	Token   string       // may be empty
	HTTP    *http.Client // nil means http.DefaultClient
}

// Healthz returns an error if the node is not alive.
func (c Client) Healthz(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base()+"/healthz", nil)
	if err != nil {
		return fmt.Errorf("healthcheck: %w", err)
	}
	answer, err := c.client().Do(r)
	if err != nil {
		return fmt.Errorf("no weir answers at %s: %w", c.base(), errors.Unwrap(err)) // without the URL
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("healthcheck: %s", answer.Status)
	}
	return nil
}

// Get returns what the API has at path, such as /routes.
func Get[A any](ctx context.Context, c Client, path string) (A, error) {
	return send[A](ctx, c, http.MethodGet, path, nil)
}

// Post sends body as JSON to path, and returns the response.
func Post[A any](ctx context.Context, c Client, path string, body any) (none A, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return none, fmt.Errorf("ask %s: %w", c.base(), err)
	}
	return send[A](ctx, c, http.MethodPost, path, text)
}

// send sends one request, with a body of JSON.
func send[A any](ctx context.Context, c Client, method, path string, body []byte) (into A, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, c.base()+apiRoot+path, bytes.NewReader(body)) // #nosec G704 -- the operator names the host
	if err != nil {
		return into, fmt.Errorf("ask %s: %w", c.base(), err)
	}
	r.Header.Set("Content-Type", "application/json")
	if c.Token != "" {
		r.Header.Set("Authorization", "Bearer "+c.Token)
	}
	answer, err := c.client().Do(r) // #nosec G704 -- as above
	if err != nil {
		return into, fmt.Errorf("no weir answers at %s: %w; name its admin listener with --admin", c.base(), errors.Unwrap(err)) // without the URL
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

// Change resets, grants, bans or unbans a key, or assigns a plan to it.
func (c Client) Change(ctx context.Context, k view.KeyChange) (view.KeyResult, error) {
	a := KeyAction{KeyQuery: k.KeyQuery, Reason: k.Reason}
	body, known := map[view.KeyAction]any{
		view.KeyReset: a, view.KeyUnban: a, view.KeyUnassign: a,
		view.KeyGrant: KeyGrant{a, k.Permits}, view.KeyBan: KeyBan{a, k.For}, view.KeyAssign: KeyPlan{a, k.Plan, k.For},
	}[k.Action]
	if !known {
		return view.KeyResult{}, fmt.Errorf("there is no action %q", k.Action)
	}
	return Post[view.KeyResult](ctx, c, "/keys/"+string(k.Action), body)
}

// TopOf returns the keys with most requests and with most refusals.
func (c Client) TopOf(ctx context.Context, q view.TopQuery) (view.Top, error) {
	return Get[view.Top](ctx, c, "/top?"+QueryOf(map[string]any{"route": q.Route, "limit": q.Limit, "minutes": q.Minutes, "n": q.N}))
}

// Decisions returns recent decisions of all nodes, newest first.
func (c Client) Decisions(ctx context.Context, q view.DecisionQuery) (view.Decisions, error) {
	before := ""
	if !q.Before.IsZero() {
		before = q.Before.Format(time.RFC3339Nano)
	}
	return Get[view.Decisions](ctx, c, "/decisions?"+QueryOf(map[string]any{
		"request_id": q.RequestID, "route": q.Route, "limit": q.Limit, "outcome": q.Outcome, "key": q.Key, "before": before, "n": q.N,
	}))
}

// QueryOf encodes the parameters, texts and numbers, that are neither empty nor 0.
func QueryOf(parameters map[string]any) string {
	query := url.Values{}
	for name, value := range parameters {
		if value != "" && value != 0 {
			query.Set(name, fmt.Sprint(value))
		}
	}
	return query.Encode()
}

// AuditPage returns actions of operators, newest first.
func (c Client) AuditPage(ctx context.Context, q view.AuditQuery) (view.Audit, error) {
	return Get[view.Audit](ctx, c, "/audit?"+QueryOf(map[string]any{"before": q.Before, "n": q.N}))
}
