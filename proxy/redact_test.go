package proxy

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/view"
)

// Without a secret a hash in the log is not the one that anybody can make of a phone
// number; those who share a salt write the same.
func TestRedact_WithoutASecretHashesAreSalted(t *testing.T) {
	const file = "keys: {phone: header:X-Phone}\n"
	limits := limitYAML("{key: phone, rate: 1/1h}")
	hash := func(yaml string, change ...func(*Options)) string {
		w := newProxy(t, yaml+limits, change...)
		w.sends(200, "GET", "/a", "X-Phone: 13800138000")
		w.sends(429, "GET", "/a", "X-Phone: 13800138000")
		return w.lines("request")[1]["key"].(string)
	}
	guess := limiter.KeyOf("phone", "13800138000").String()[:keyDigits]
	salt := NewSalt()
	shared := func(o *Options) { o.LogSalt = func() Salt { return salt } }
	one, other, first, second := hash(file), hash(file), hash(file, shared), hash(file, shared)
	if one == guess || other == guess || one == other {
		t.Errorf("hashes %s and %s of two processes, %s unsalted; want three different ones", one, other, guess)
	}
	if first != second || first == one {
		t.Errorf("hashes %s and %s under one salt; want the same", first, second)
	}
	const secret = "a-secret-long-enough-for-this"
	want := limiter.KeyWithSecret([]byte(secret), "phone", "13800138000").String()[:keyDigits]
	if got := hash("privacy: {hash_secret: " + secret + "}\n" + file); got != want {
		t.Errorf("hash %s under a secret; want %s, as in the store", got, want)
	}
}

func TestRedact_TheClientsAddress(t *testing.T) {
	for _, c := range []struct{ client, setting, want string }{
		{"198.51.100.7", "full", "198.51.100.7"},
		{"198.51.100.7", "network", "198.51.100.0/24"},
		{"2001:db8:1:2:3:4:5:6", "network", "2001:db8:1::/48"},
		{"198.51.100.7", "none", ""},
	} {
		x := &exchange{client: client{addr: netip.MustParseAddr(c.client)}}
		r := redactor{privacy: config.Privacy{LogClient: config.LogClient(c.setting)}}
		if got := r.client(x); got != c.want {
			t.Errorf("%s of %s is %q; want %q", c.setting, c.client, got, c.want)
		}
	}
	for setting, want := range map[string]string{"": "192.0.2.1", "privacy: {log_client: network}\n": "192.0.2.0/24"} {
		w := newProxy(t, setting+limitYAML("{key: global, rate: 9/1h}"))
		w.sends(200, "GET", "/a")
		if got := w.lines("request")[0]["client"]; got != want {
			t.Errorf("%q: client = %v; want %s", setting, got, want)
		}
	}
	for _, setting := range []string{"none", "hashed", "hashed, hash_secret: a-secret-long-enough"} {
		w := newProxy(t, "privacy: {log_client: "+setting+"}\n"+limitYAML("{key: client_ip, rate: 1/1h}"))
		for range 3 {
			w.send("GET", "/a")
		}
		if strings.Contains(w.log.String(), "192.0.2.1") {
			t.Errorf("%s: the address is in the log: %s", setting, w.log.String())
		}
		lines := w.lines("request")
		_, there := lines[0]["client"]
		if there != strings.HasPrefix(setting, "hashed") || lines[0]["client"] != lines[1]["client"] {
			t.Errorf("%s: clients %v and %v", setting, lines[0]["client"], lines[1]["client"])
		}
	}
}

// A phone number in a path is logged nowhere unless it is in a route's own words.
func TestRedact_Paths(t *testing.T) {
	w := newProxy(t, `
routes:
  - {name: open, match: {path: "/open/{id}"}, upstream: echo}
  - {name: user, match: {path: "/users/{name}/x/{number}"}, upstream: echo, log_path: redacted}
  - {name: tree, match: {path: "/tree/*"}, upstream: echo, log_path: redacted}
`)
	for _, c := range []struct{ path, want string }{
		{"/open/abc", "/open/abc"},
		{"/users/alice/x/1", "/users/*/x/*"},
		{"/tree/v1/13800138000/send", "/tree/v1/*/send"},
		{"/tree/a@example.com", "/tree/*"},
		{"/tree/%2B8613800138000", "/tree/*"},
		{"/nowhere/v2/13800138000", "/nowhere/v2/*"},
		{"/nowhere/2026/a%20b/x", "/nowhere/2026/*/x"},
		{"/" + strings.Repeat("x", 65), "/*"},
		{"/" + strings.Repeat("ab/", 200), "/" + strings.Repeat("ab/", 85)},
	} {
		w.send("GET", c.path)
		lines := w.lines("request")
		if got := fmt.Sprint(lines[len(lines)-1]["path"]); got != c.want {
			t.Errorf("path %s is logged as %s; want %s", c.path, got, c.want)
		}
	}
	if strings.Contains(w.log.String(), "138001") {
		t.Errorf("a phone number is in the log: %s", w.log.String())
	}
}

// A key in a path is hidden where it stands, also if another segment is like it or begins with it.
func TestRedact_KeysInPaths(t *testing.T) {
	w := newProxy(t, `
routes:
  - {name: user, match: {path: "/users/{user}"}, upstream: echo, limits: [{key: "path:user", rate: 9/1h}]}
  - {name: from, match: {path: "/from/{other}/{user}/x"}, upstream: echo, limits: [{key: "path:user", rate: 9/1h}]}
`)
	for _, c := range []struct{ path, want string }{
		{"/users/us", "/users/*"}, {"/users/users", "/users/*"},
		{"/from/ab/a/x", "/from/ab/*/x"}, {"/from/a/a/x", "/from/a/*/x"}, {"/from/from/from/x", "/from/from/*/x"},
	} {
		w.send("GET", c.path)
		lines := w.lines("request")
		if got := fmt.Sprint(lines[len(lines)-1]["path"]); got != c.want {
			t.Errorf("path %s is logged as %s; want %s", c.path, got, c.want)
		}
	}
	for _, d := range w.Decisions(view.DecisionQuery{N: 10}) { // of the allowed ones a sample
		if !strings.Contains(w.log.String(), `"path":"`+d.Path+`"`) {
			t.Errorf("a path is recorded as %s, and logged otherwise", d.Path)
		}
	}
}
