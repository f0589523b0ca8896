package route

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// A query decides only where it can be read in one way.
func TestQuery_Decides(t *testing.T) {
	tb := NewTable([]Entry[string]{
		{Pattern{Path: "/a", Query: map[string]string{"mode": "test"}}, "test"},
		{Pattern{Path: "/a"}, "plain"},
		{Pattern{Path: "/b", Query: map[string]string{"mode": "*"}, IgnoresForms: true}, "forms"},
	})
	for _, c := range []struct {
		path string
		testMessage
		want string
		err  error
	}{
		{"/a", testMessage{query: "mode=test"}, "test", nil},
		{"/a", testMessage{query: "mode=live"}, "plain", nil},
		{"/a", testMessage{}, "plain", nil},
		{"/a", testMessage{query: "mode=test&mode=live"}, "", ErrQuery},
		{"/a", testMessage{query: "mode[]=live"}, "", ErrQuery},
		{"/a", testMessage{query: "mode=%zz"}, "", ErrQuery},
		{"/a", testMessage{query: "a;b"}, "", ErrQuery},
		{"/a", testMessage{query: "mode=test", form: true}, "", ErrQuery},
		{"/b", testMessage{query: "mode=test", form: true}, "forms", nil},
		{"/b", testMessage{}, "", ErrNone},
	} {
		q := &Request{RawTarget: RawTarget{Method: "GET"}, Target: Target{Host: "a", Path: c.path}, Message: &c.testMessage}
		if found, err := tb.Find(q); found != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s?%s: %q, %v; want %q, %v", c.path, c.query, found, err, c.want, c.err)
		}
	}
}

func TestMisses_SaysWhatIsWanted(t *testing.T) {
	shown := Pattern{
		Host: "*.example.com", Methods: []string{"PUT", "POST"}, Path: "/u/{id:[0-9]+}", Headers: map[string]string{"x-app": "${APP}"}, Query: map[string]string{"mode": "*"},
	}
	served := shown
	served.Headers = map[string]string{"x-app": "beta"}
	tb := NewTable([]Entry[int]{{Pattern: served}})
	q := newRequest("GET", "example.com", "/u/a")
	want := []string{"host: want *.example.com", "path: want /u/{id:[0-9]+}", "method: want PUT or POST", "header: want X-App: ${APP}", "query: want mode"}
	if got := tb.Mismatches(0, q, shown); !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
	q = newRequest("PUT", "a.example.com", "/u/1", "X-App=beta")
	q.Message.(*testMessage).query = "mode=%zz"
	if got, want := tb.Mismatches(0, q, shown), []string{"query: it can be read in two ways"}; !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
	q.Message.(*testMessage).query = "mode="
	if got := tb.Mismatches(0, q, shown); len(got) > 0 {
		t.Errorf("%q; want nothing", got)
	}
}

func TestNormalizeHost(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"api.example.com", "api.example.com"},
		{"API.Example.COM:8080", "api.example.com"},
		{"api.example.com.", "api.example.com"},
		{"api.example.com.:80", "api.example.com"},
		{"api.example.com:", "api.example.com"},
		{"api_1.example.com:0", "api_1.example.com"},
		{"xn--mnchen-3ya.example:65535", "xn--mnchen-3ya.example"},
		{"[2001:db8::1]:80", "[2001:db8::1]"},
		{"[2001:DB8::1]", "[2001:db8::1]"},
		{"127.0.0.1:1", "127.0.0.1"},
		{"az-09_.example:9", "az-09_.example"},
		{"AZ-09_.example:9", "az-09_.example"},
		{strings.Repeat("a", maxHost), strings.Repeat("a", maxHost)},
		{strings.Repeat("A", maxHost), strings.Repeat("a", maxHost)},
		{strings.Repeat("a", maxHost-6) + ":65535", strings.Repeat("a", maxHost-6)},
	} {
		if got, err := normalizeHost(c.in); got != c.want || err != nil {
			t.Errorf("normalizeHost(%q) = %q, %v; want %q", c.in, got, err, c.want)
		}
	}
}

func TestNormalizeHost_RefusesWhatServersCutDifferently(t *testing.T) {
	for _, in := range []string{
		"", ".", ":80", "..", ".a", "a..", "a..b", "a:80:80", "a:65536", "a:99999", "a:000080", "a:+80", "a:-1", "a:8o", "a:80 ", "a: 80",
		"a,x", "x,a", "a;", "a/", "a?x", "a#x", "a\\x", "x@a", "a@x", "a b", "a%2eb", "a%00", "p\u00e4y", "\uff50ay", "a\u3002b", "a*", "*.a", "a~", "a!", "a'", "(a)", "a&b", "a=b", "a$", "a+b", "a\tb",
		"[", "]", "[]", "[::1", "::1", "[::1]x", "[::1]:x", "[::1]80", "[::1]:80:80", "[::1%25eth0]", "[fe80::1%eth0]", "[127.0.0.1]", "[v1.a]", "a]", "[a]", "[[::1]]",
		strings.Repeat("a", maxHost+1), strings.Repeat("A", maxHost+1), strings.Repeat("a", maxHost-5) + ":65535",
	} {
		if got, err := normalizeHost(in); !errors.Is(err, ErrTarget) {
			t.Errorf("normalizeHost(%q) = %q, %v; want ErrTarget", in, got, err)
		}
	}
}
