package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/config"
)

// tabled builds a table of "NAME METHODS HOST PATH [Header=value ...]"; "-"
// stands for any.
func tabled(lines ...string) *table {
	tb := newTable()
	var all []*route
	for i, line := range lines {
		part := strings.Fields(line)
		m := config.Match{Path: part[3], Headers: map[string]string{}}
		if part[1] != "-" {
			m.Methods = strings.Split(part[1], ",")
		}
		if part[2] != "-" {
			m.Host = part[2]
		}
		for _, h := range part[4:] {
			name, value, _ := strings.Cut(h, "=")
			m.Headers[name] = value
		}
		r := &route{name: part[0], order: i}
		tb.add(r, m)
		all = append(all, r)
	}
	tb.fold(all)
	return &tb
}

func wanting(method, host, path string, headers ...string) *exchange {
	x := newExchange().(*exchange)
	x.method, x.host, x.path, x.header = method, host, path, http.Header{}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, "=")
		x.header.(http.Header).Add(name, value)
	}
	return x
}

func TestMatch_MostSpecificWins(t *testing.T) {
	tb := tabled(
		"rest        -        -                /*",
		"send        POST     -                /v1/sms/send",
		"send-any    -        -                /v1/sms/send",
		"user        -        -                /v1/users/{id}",
		"user-number -        -                /v1/users/{id:[0-9]+}",
		"user-me     -        -                /v1/users/me",
		"user-sub    -        -                /v1/users/{who}/keys",
		"api         -        api.example.com  /*",
		"tenant      -        *.example.com    /v1/*",
		"deep        -        *.b.example.com  /v1/*",
		"beta        -        -                /v1/sms/send X-App=beta",
		"beta-post   POST     -                /v1/sms/send X-App=beta X-Test=*",
		"double      -        -                /v1/sms/send X-App=beta",
		"files       GET,HEAD -                /files/*",
		"brace       -        -                /tag/{t:[a-z]{2}}",
		"dash        -        -                /pair/{a}-{b}",
	)
	for _, c := range []struct {
		method, host, path string
		headers            []string
		want, params       string
	}{
		{"GET", "x", "/", nil, "rest", "*="},
		{"POST", "x", "/v1/sms/send", nil, "send", ""},
		{"GET", "x", "/v1/sms/send", nil, "send-any", ""},
		{"PROPFIND", "x", "/v1/sms/send", nil, "send-any", ""},
		{"GET", "x", "/v1/sms/send/", nil, "rest", "*=v1/sms/send/"},
		{"GET", "x", "/v1/sms/send", []string{"X-App=beta"}, "beta", ""},
		{"POST", "x", "/v1/sms/send", []string{"X-App=beta", "X-Test=1"}, "beta-post", ""},
		{"POST", "x", "/v1/sms/send", []string{"X-App=beta"}, "send", ""},
		{"GET", "x", "/v1/sms/send", []string{"X-App=gamma"}, "send-any", ""},
		{"GET", "x", "/v1/users/bob", nil, "user", "id=bob"},
		{"GET", "x", "/v1/users/42", nil, "user-number", "id=42"},
		{"GET", "x", "/v1/users/me", nil, "user-me", ""},
		{"GET", "x", "/v1/users/bob/keys", nil, "user-sub", "who=bob"},
		{"GET", "x", "/v1/users/j%C3%B6rg", nil, "user", "id=jörg"},
		{"GET", "api.example.com", "/v1/sms/send", nil, "api", "*=v1/sms/send"},
		{"GET", "c.example.com", "/v1/sms/send", nil, "tenant", "*=sms/send"},
		{"GET", "a.b.example.com", "/v1/x", nil, "deep", "*=x"},
		{"GET", "c.example.com", "/v2", nil, "rest", "*=v2"},
		{"GET", "example.com", "/v1/x", nil, "rest", "*=v1/x"},
		{"GET", ".example.com", "/v1/x", nil, "rest", "*=v1/x"},
		{"HEAD", "x", "/files/a/b", nil, "files", "*=a/b"},
		{"POST", "x", "/files/a", nil, "rest", "*=files/a"},
		{"GET", "x", "/tag/de", nil, "brace", "t=de"},
		{"GET", "x", "/tag/deu", nil, "rest", "*=tag/deu"},
		{"GET", "x", "/pair/one-two", nil, "dash", "a=one b=two"},
	} {
		x := wanting(c.method, c.host, c.path, c.headers...)
		if err := tb.match(x); err != nil {
			t.Errorf("%s %s%s %v: %v; want %s", c.method, c.host, c.path, c.headers, err, c.want)
			continue
		}
		var params []string
		for _, name := range x.route.params {
			params = append(params, name+"="+x.Param(name))
		}
		if got := strings.Join(params, " "); x.route.name != c.want || got != c.params {
			t.Errorf("%s %s%s %v: route %s with %q; want %s with %q", c.method, c.host, c.path, c.headers, x.route.name, got, c.want, c.params)
		}
	}
}

func TestMatch_NoRoute(t *testing.T) {
	tb := tabled("send POST,PUT - /v1/sms/send", "get GET a.example.com /v1/sms/send", "any - - /any")
	if err := tb.match(wanting("GET", "x", "/nowhere")); !errors.Is(err, errNoRoute) {
		t.Errorf("unknown path: %v; want errNoRoute", err)
	}
	x := wanting("DELETE", "a.example.com", "/v1/sms/send")
	if err := tb.match(x); !errors.Is(err, errNotMethod) {
		t.Errorf("other method: %v; want errNotMethod", err)
	}
	if got := strings.Join(tb.allowed(x), ","); got != "GET,POST,PUT" {
		t.Errorf("allowed = %s; want GET,POST,PUT", got)
	}
	if got := wanting("GET", "x", "/any").Param("id"); got != "" {
		t.Errorf("a parameter before there is a route = %q; want none", got)
	}
}

func TestMatch_EarlierOfEqualsWins(t *testing.T) {
	tb := tabled("first - - /a/{x}", "second - - /a/{y}")
	x := wanting("GET", "x", "/a/1")
	if err := tb.match(x); err != nil || x.route.name != "first" || x.Param("x") != "1" {
		t.Errorf("route = %v, x = %q, %v; want first with x=1", x.route, x.Param("x"), err)
	}
}

// BenchmarkMatch shows that finding the route of a request costs the same
// however many routes there are: compare routes=1000 with routes=10.
func BenchmarkMatch(b *testing.B) {
	for _, n := range []int{10, 100, 1000} {
		b.Run(fmt.Sprintf("routes=%d", n), func(b *testing.B) {
			var lines, paths []string
			for i := range n / 2 {
				lines = append(lines, fmt.Sprintf("a%d POST,GET - /v1/service%03d/{id}/send", i, i), fmt.Sprintf("b%d - - /v1/service%03d/send", i, i))
				paths = append(paths, fmt.Sprintf("/v1/service%03d/4711/send", i), fmt.Sprintf("/v1/service%03d/send", i))
			}
			tb := tabled(lines...)
			x := wanting("POST", "x", "")
			x.authority = "api.example.com:8080"
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				x.target = paths[i%n]
				if err := errors.Join(tidy(x), tb.match(x)); err != nil {
					b.Fatal(err)
				}
				i += 7
			}
		})
	}
}
