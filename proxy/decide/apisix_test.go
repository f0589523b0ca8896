package decide

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A forwardAuth does what the plugin forward-auth of APISIX does with the lists of the example.
type forwardAuth struct {
	*listener
	lists  map[string][]string
	method string            // request_method
	extra  map[string]string // extra_headers, resolved
}

// listPattern finds the lists of the example.
var listPattern = regexp.MustCompile(`(?m)^ +(\w+_headers): \[(.*)\]`)

func newForwardAuth(t *testing.T) *forwardAuth {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "test", "deploy", "decide", "apisix.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	f := &forwardAuth{listen(t, memory(), "dialect: apisix"), map[string][]string{}, "GET", nil}
	for _, found := range listPattern.FindAllStringSubmatch(string(text), -1) {
		f.lists[found[1]] = strings.Split(found[2], ", ")
	}
	return f
}

// rewrite asks about a request of 192.0.2.1. It returns what the client gets if that is refused, and sets
// the header for the application if it is allowed.
func (f *forwardAuth) rewrite(target, body string, client http.Header) reply {
	f.Helper()
	method := map[bool]string{true: "GET", false: "POST"}[body == ""]
	asks, err := http.NewRequest(f.method, f.url+"/decide", nil)
	if err != nil {
		f.Fatal(err)
	}
	asks.Header = http.Header{
		"X-Forwarded-Proto": {"http"}, "X-Forwarded-Method": {method}, "X-Forwarded-Host": {"api.example.com"}, "X-Forwarded-Uri": {target},
		"X-Forwarded-For": {"192.0.2.1"}, // the address of the connection alone
		"User-Agent":      {"lua-resty-http/0.17.2 (Lua) ngx_lua/10028"},
	}
	if f.method == "POST" {
		asks.Body, asks.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	}
	for name, value := range f.extra {
		asks.Header.Set(name, value)
	}
	for _, name := range f.lists["request_headers"] {
		if value := client.Get(name); value != "" && asks.Header.Get(name) == "" {
			asks.Header.Set(name, value) // the first of several
		}
	}
	answer, err := http.DefaultClient.Do(asks)
	if err != nil {
		f.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		f.Fatal(err)
	}
	got := reply{answer.StatusCode, http.Header{}, ""}
	if answer.StatusCode >= 300 {
		for _, name := range f.lists["client_headers"] {
			got.header[name] = answer.Header.Values(name)
		}
		got.body = string(text)
		return got
	}
	for _, name := range f.lists["upstream_headers"] {
		client.Del(name)
		if value := answer.Header.Get(name); value != "" {
			client.Set(name, value)
		}
	}
	return got
}

// wants asks about a request and wants this status.
func (f *forwardAuth) wants(status int, target, body string, client http.Header) reply {
	f.Helper()
	got := f.rewrite(target, body, client)
	if got.status != status {
		f.Errorf("%s %s %v: %d %s; want %d", target, body, client, got.status, got.body, status)
	}
	return got
}

// TestDecide_AsAPISIXAsks replays the requests of APISIX' plugin, which no package has.
func TestDecide_AsAPISIXAsks(t *testing.T) {
	f := newForwardAuth(t)
	twice := http.Header{"X-Phone": {"1", "2"}, "X-Weir-Handle": {"of the client"}}
	f.wants(200, "/send?a=b", "", twice)
	if handles := twice["X-Weir-Handle"]; !slices.Equal(twice["X-Phone"], []string{"1"}) || len(handles) != 1 || handles[0] == "of the client" {
		t.Errorf("the application gets %v; want what was counted, and Weir's handle", twice)
	}
	f.wants(200, "/send", "", http.Header{"X-Phone": {"1"}})
	refused := f.wants(429, "/send", "", http.Header{"X-Phone": {"1", "3"}})
	for _, name := range []string{"Retry-After", "RateLimit", "RateLimit-Policy"} {
		if len(refused.header[name]) != 1 {
			t.Errorf("a refusal has %v; want %s", refused.header, name)
		}
	}
	if !json.Valid([]byte(refused.body)) || !slices.Equal(refused.header["Content-Type"], []string{"application/problem+json"}) {
		t.Errorf("a refusal is %v %s; want a problem", refused.header, refused.body)
	}
	f.wants(400, "/send", "", http.Header{})

	f.wants(200, "/address", "", http.Header{})
	f.wants(429, "/address", "", http.Header{"X-Forwarded-For": {"198.51.100.7"}, "X-Forwarded-Uri": {"/other"}})

	f.extra = map[string]string{"X-Phone": "5"} // $post_arg.phone
	for _, status := range []int{200, 200, 429} {
		f.wants(status, "/send", "phone=5", http.Header{"X-Phone": {"6"}, "Content-Type": {"application/x-www-form-urlencoded"}})
	}

	f.method, f.extra = "POST", nil
	for _, c := range []struct {
		body   string
		status int
	}{{`{"phone": "1"}`, 200}, {`{"phone": "1"}`, 429}, {`{"phone": "2"}`, 200}, {`{}`, 400}} {
		f.wants(c.status, "/json", c.body, http.Header{"Content-Type": {"application/json"}})
	}
}
