package convert

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/view"
	"github.com/weir-proxy/weir/test/rounds"
)

// asked returns what Weir does with GET URL from 198.51.100.7, or with the request METHOD URL from ADDRESS: the status of its
// answer, or the target that gets the request.
func asked(t *testing.T, c *config.Config, request string) string {
	t.Helper()
	r := view.ExplainRequest{Method: "GET", Client: netip.MustParseAddr("198.51.100.7")}
	request, from, given := strings.Cut(request, " from ")
	if given {
		r.Client = netip.MustParseAddr(from)
	}
	r.URL = request
	if method, url, given := strings.Cut(request, " "); given {
		r.Method, r.URL = method, url
	}
	if strings.HasPrefix(r.URL, "/") {
		r.URL = "http://a.example" + r.URL
	}
	p, err := proxy.NewOffline(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	e, err := p.Explain(t.Context(), r)
	switch {
	case err != nil:
		t.Fatal(err)
	case e.Upstream != nil:
		return strings.Join(e.Upstream.Targets, ",") + e.Upstream.Target
	case e.Answer.Status >= 300 && e.Answer.Status < 400:
		return fmt.Sprint(e.Answer.Status, " ", strings.Join(e.Answer.Header["Location"], ","))
	}
	return fmt.Sprint(e.Answer.Status)
}

// inServer returns a file whose server has these directives, and limits.
func inServer(directives string) string {
	return "limit_req_zone $binary_remote_addr zone=one:1m rate=5r/s;\nserver {\nlimit_req zone=one burst=5;\n" + directives + "\n}\n"
}

const app = "proxy_pass http://127.0.0.1:9000;"

// What nginx does not let through does not come through Weir either; what is lost is an error.
func TestConvert_NginxProtectsTheSame(t *testing.T) {
	for _, test := range []struct {
		name, file string
		lost       int
		answers    map[string]string
	}{
		{"addresses", inServer("location /admin/ { allow 10.0.0.0/8; deny all; " + app + " }\nlocation / { " + app + " }"), 0, map[string]string{
			"/admin/x": "403", "/admin/x from 10.1.2.3": "http://127.0.0.1:9000/admin/x", "/admin/ from 10.1.2.3": "http://127.0.0.1:9000/admin/", "/admin": "403", "/": "http://127.0.0.1:9000/", "/adminx": "http://127.0.0.1:9000/adminx",
		}},
		{"a slash at the end", inServer("location /a { " + app + " } location /b { allow 10.0.0.0/8; deny all; " + app + " } location / { " + app + " }"), 0, map[string]string{
			"/a": "http://127.0.0.1:9000/a", "/a/": "http://127.0.0.1:9000/a/", "/b/ from 10.0.0.1": "http://127.0.0.1:9000/b/", "/b/": "403", "/b from 10.0.0.1": "http://127.0.0.1:9000/b",
		}},
		{"denied addresses", inServer("deny 10.0.0.1; allow 10.0.0.0/8; deny all; location / { " + app + " }"), 0, map[string]string{
			"/": "403", "/ from 10.0.0.1": "403", "/ from 10.0.0.2": "http://127.0.0.1:9000/",
		}},
		{"only denied addresses", inServer("deny 2001:db8::/32; deny 192.0.2.1; location / { " + app + " }"), 0, map[string]string{
			"/": "http://127.0.0.1:9000/", "/ from 2001:db8::1": "403", "/ from 192.0.2.1": "403",
		}},
		{"an exception from what is denied", inServer("allow 10.0.0.1; deny 10.0.0.0/8; location / { " + app + " }"), 2, map[string]string{"/": "403"}},
		{"a socket", inServer("allow unix:; deny all; location / { " + app + " }"), 2, map[string]string{"/": "403"}},
		{"nobody", inServer("location /x { deny all; " + app + " } location / { " + app + " }"), 0, map[string]string{
			"/x": "403", "/x/y": "403", "/xy": "403", "/": "http://127.0.0.1:9000/",
		}},
		{"internal", inServer("location /x/ { internal; " + app + " } location / { " + app + " }"), 0, map[string]string{"/x/y": "404", "/y": "http://127.0.0.1:9000/y"}},
		{"inherited and switched off", inServer("auth_basic a; location / { " + app + " } location /open/ { auth_basic off; " + app + " }"), 1, map[string]string{
			"/": "403", "/open/x": "http://127.0.0.1:9000/open/x",
		}},
		{"all that begins with it", inServer("location /admin { auth_basic a; " + app + " } location / { " + app + " } location /admin-public/ { " + app + " }"), 1, map[string]string{
			"/admin": "403", "/adminx": "403", "/adminx/y": "403", "/admin/y/z": "403", "/other": "http://127.0.0.1:9000/other", "/admin-public/x": "http://127.0.0.1:9000/admin-public/x",
		}},
		{"a longer one is protected", inServer("location /a { " + app + " } location /a/ { deny all; " + app + " } location / { " + app + " }"), 0, map[string]string{
			"/a/x": "403", "/b": "http://127.0.0.1:9000/b",
		}},
		{"an exact one is open", inServer("location /a { deny all; } location = /a { " + app + " } location / { " + app + " }"), 0, map[string]string{
			"/a": "http://127.0.0.1:9000/a", "/a/x": "403",
		}},
		{"within another", inServer("location /a/ { " + app + " location /a/b/ { auth_request /v; " + app + " } } location / { " + app + " }"), 1, map[string]string{
			"/a/x": "403", "/a/b/x": "403", "/": "http://127.0.0.1:9000/",
		}},
		{"an expression with a beginning", inServer("location ~ ^/admin(/|$) { auth_basic a; " + app + " } location / { " + app + " } location /b/ { " + app + " }"), 1, map[string]string{
			"/admin": "403", "/admin/x": "403", "/": "http://127.0.0.1:9000/", "/b/x": "http://127.0.0.1:9000/b/x",
		}},
		{"an expression in any case", inServer("location ~* ^/admin/(a|b) { auth_basic a; " + app + " } location / { " + app + " } location /ADMIN/b/ { " + app + " }"), 1, map[string]string{
			"/admin/a": "403", "/Admin/a": "403", "/ADMIN/b/x": "403", "/": "http://127.0.0.1:9000/",
		}},
		{"a beginning of another", inServer("location /adm { allow 10.0.0.0/8; deny all; " + app + " } location /admin { auth_basic a; " + app + " } location / { " + app + " }"), 1, map[string]string{
			"/adm from 10.0.0.1": "http://127.0.0.1:9000/adm", "/admin from 10.0.0.1": "403", "/adminx/y from 10.0.0.1": "403", "/adm": "403",
		}},
		{"an expression in any case beside a part of it", inServer("location ~* ^/api/v2 { auth_basic a; " + app + " } location /api/ { " + app + " } location / { " + app + " }"), 1, map[string]string{
			"/api/v2/x": "403", "/api/V2": "403", "/": "http://127.0.0.1:9000/",
		}},
		{"an expression before what is below it", inServer("location ~ ^/api { auth_basic a; " + app + " } location /api/v1/ { " + app + " } location ~ ^/one$ { deny all; } location / { " + app + " }"), 1, map[string]string{
			"/api/v1/x": "403", "/apix": "403", "/one": "403", "/onex": "http://127.0.0.1:9000/onex",
		}},
		{"an expression for anything", inServer(`location ~ /\.ht { deny all; }` + " location / { " + app + " } location ^~ /files/ { " + app + " } location = /one { " + app + " } location /b/ { " + app + " }"), 1, map[string]string{
			"/.htaccess": "403", "/": "403", "/b/.htaccess": "403", "/files/.htaccess": "http://127.0.0.1:9000/files/.htaccess", "/one": "http://127.0.0.1:9000/one",
		}},
		{"an expression within", inServer("location /up/ { " + app + ` location ~ \.php$ { return 403; } } location / { ` + app + " }"), 1, map[string]string{
			"/up/a.php": "403", "/a.php": "http://127.0.0.1:9000/a.php",
		}},
		{"an expression in another before those beside it", inServer("location ~ ^/a/ { " + app + " } location /a { " + app + " location ~ ^/a { deny all; } } location / { " + app + " }"), 1, map[string]string{
			"/a/b": "403", "/a": "403", "/": "http://127.0.0.1:9000/",
		}},
		{"an expression that protects nothing", inServer(`location ~ \.php$ { fastcgi_pass a; } location / { ` + app + " }"), 0, map[string]string{"/a.php": "http://127.0.0.1:9000/a.php"}},
		{"if", inServer("if ($http_user_agent ~ bot) { return 403; } location / { " + app + " }"), 1, map[string]string{"/": "403"}},
		{"if that protects nothing", inServer("if ($http_x) { set $y 1; } location / { " + app + " }"), 0, map[string]string{"/": "http://127.0.0.1:9000/"}},
		{"a file that is not here", inServer("location /a/ { include snippets/auth.conf; " + app + " } location / { include proxy.conf; " + app + " }"), 1, map[string]string{"/a/x": "403", "/": "http://127.0.0.1:9000/"}},
		{"what is not known", inServer("location / { auth_basic a; proxy_pass http://$host; }"), 1, map[string]string{"/": "403"}},
		{"addresses and a password", inServer("location / { allow 10.0.0.0/8; deny all; auth_basic a; " + app + " }"), 1, map[string]string{"/ from 10.0.0.1": "403"}},
		{"addresses or a password", inServer("satisfy any; location / { allow 10.0.0.0/8; deny all; auth_basic a; " + app + " }"), 3, map[string]string{"/ from 10.0.0.1": "403"}},
		{"before the answer", inServer("auth_basic a; location / { return 301 https://b.example$request_uri; }"), 0, map[string]string{"/x?y=1": "301 https://b.example/x?y=1"}},
		{"a server that is left out", inServer("location / { "+app+" }") + "server { server_name b.example; auth_basic a; location / { " + app + " } }", 1, map[string]string{
			"http://b.example/": "403", "http://a.example/": "http://127.0.0.1:9000/",
		}},
		{"a server whose host is an expression", inServer("server_name a.example; location / { "+app+" }") + "server { server_name ~^b; limit_req zone=one; auth_basic a; location / { " + app + " } }", 1, map[string]string{
			"http://b.example/": "403", "http://a.example/": "http://127.0.0.1:9000/",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			result, c := parsed(t, "nginx", test.file)
			if lost := result.Lost(); len(lost) != test.lost {
				t.Errorf("lost %q, want %d", lost, test.lost)
			}
			for request, want := range test.answers {
				if got := asked(t, c, request); got != want {
					t.Errorf("%s: %s, want %s\n%s", request, got, want, result.YAML)
				}
			}
		})
	}
}

// The address in a proxy_pass is that to which nginx forwards, or none.
func TestConvert_NginxForwardsToTheSame(t *testing.T) {
	for _, test := range []struct{ name, directives, request, want string }{
		{"what set says", "set $n http://127.0.0.1:9001; location / { proxy_pass $n; }", "/x", "502"},
		{"the path of the request", "location / { proxy_pass http://back$request_uri; }", "/x?y=1", "http://127.0.0.1:9003/x?y=1"},
		{"a map", "location / { proxy_pass http://$mapped; }", "/x", "502"},
		{"of the client", "location / { proxy_pass http://$host; }", "/x", "502"},
		{"the scheme of the client", "location / { proxy_pass $scheme://127.0.0.1:9001; }", "/x", "502"},
		{"nothing that Weir has", "location / { proxy_pass http://a..b; }", "/x", "502"},
		{"an upstream without servers", "location / { proxy_pass http://none; }", "/x", "502"},
		{"servers that are down", "location / { proxy_pass http://down; }", "/x", "502"},
		{"a path", "location /a/ { proxy_pass http://127.0.0.1:9001/b/; } location / { " + app + " }", "/a/x", "http://127.0.0.1:9001/b/x"},
		{"a path without slashes", "location /a { proxy_pass http://127.0.0.1:9001/b; } location / { " + app + " }", "/a/x", "http://127.0.0.1:9001/b/x"},
		{"no path", "location /a { proxy_pass http://127.0.0.1:9001/; } location / { " + app + " }", "/a/x", "http://127.0.0.1:9001/x"},
	} {
		t.Run(test.name, func(t *testing.T) {
			result, c := parsed(t, "nginx", "map $http_x $mapped { default back; y 127.0.0.1; }\n"+
				"upstream back { server 127.0.0.1:9003; server 127.0.0.1:9004 down; }\nupstream none { }\nupstream down { server 127.0.0.1:9004 down; }\n"+inServer(test.directives))
			if got := asked(t, c, test.request); got != test.want {
				t.Errorf("%s: %s, want %s\n%s", test.request, got, test.want, result.YAML)
			}
			if strings.Contains(string(result.YAML), "127.0.0.1:8081") {
				t.Errorf("an address that is made up:\n%s", result.YAML)
			}
			unknown := func(n Note) bool { return strings.Contains(n.What, "a server that this file does not name") }
			if slices.ContainsFunc(result.Notes, unknown) != (test.want == "502") {
				t.Errorf("notes %v", result.Notes)
			}
		})
	}
}

// A limit that nginx applies to some requests refuses no other request: it is written with mode: shadow, or not at all.
func TestConvert_NginxLimitsOfSomeRequestsRefuseNobodyElse(t *testing.T) {
	const listed = "{key: client_ip, rate: 1/1m, algorithm: gcra, burst: 1}"
	for _, test := range []struct {
		name, before, key string
		limit             string // "" for none
	}{
		{"of some agents", `map $http_user_agent $k { default ""; ~*bot $http_user_agent; }`, "$k", "{key: user_agent, rate: 1/1m, algorithm: gcra, burst: 1, mode: shadow}"},
		{"of some agents together", `map $http_user_agent $k { default ""; ~*bot 1; }`, "$k", ""},
		{"without a default", `map $uri $k { /login $binary_remote_addr; }`, "$k", "{key: client_ip, rate: 1/1m, algorithm: gcra, burst: 1, mode: shadow}"},
		{"of others in another file", `map $uri $k { default $binary_remote_addr; include paths.map; }`, "$k", "{key: client_ip, rate: 1/1m, algorithm: gcra, burst: 1, mode: shadow}"},
		{"of all but some agents", `map $http_user_agent $k { default $binary_remote_addr; ~*monitor ""; }`, "$k", "{key: client_ip, rate: 1/1m, algorithm: gcra, burst: 1, mode: shadow}"},
		{"of all", `map $http_user_agent $k { default $binary_remote_addr; }`, "$k", listed},
		{"with several keys", `map $http_user_agent $k { default $binary_remote_addr; ~*bot $http_user_agent; }`, "$k", ""},
		{"of a part", `map $http_user_agent $k { default ""; ~*bot $http_user_agent; }`, "$binary_remote_addr$k", ""},
		{"of a map of a map", `map $http_x $j { default ""; y 1; } map $http_user_agent $k { default $j; }`, "$k", ""},
		{"of all but some networks", `geo $g { default 1; 10.0.0.0/8 0; } map $g $k { 0 ""; 1 $binary_remote_addr; }`, "$k", "{key: client_ip, rate: 1/1m, algorithm: gcra, burst: 1, mode: shadow}"},
		{"of all but some addresses", `map $remote_addr $k { default $binary_remote_addr; 10.0.0.1 ""; }`, "$k", "{key: client_ip, rate: 1/1m, algorithm: gcra, burst: 1, mode: shadow}"},
		{"of some networks", `geo $g { default 0; 10.0.0.0/8 1; } map $g $k { 0 ""; 1 $binary_remote_addr; }`, "$k", "{key: client_ip, rate: 1/1m, algorithm: gcra, burst: 1, mode: shadow}"},
		{"of networks in networks", `geo $g { default 1; 10.0.0.0/8 0; 10.1.0.0/16 1; } map $g $k { 0 ""; 1 $binary_remote_addr; }`, "$k", "{key: client_ip, rate: 1/1m, algorithm: gcra, burst: 1, mode: shadow}"},
		{"of ranges", `geo $g { ranges; default 1; 10.0.0.0-10.0.0.9 0; } map $g $k { 0 ""; 1 $binary_remote_addr; }`, "$k", "{key: client_ip, rate: 1/1m, algorithm: gcra, burst: 1, mode: shadow}"},
		{"of a geo", `geo $k { default ""; 10.0.0.0/8 1; }`, "$k", ""},
		{"by what is set", `server { server_name other.example; set $k $binary_remote_addr; }`, "$k", ""},
		{"of a part of clients", `split_clients $remote_addr $k { 10% a; * ""; }`, "$k", ""},
		{"of no requests", ``, `""`, ""},
		{"behind a proxy", ``, "$http_x_forwarded_for", "{key: client_ip, rate: 1/1m, algorithm: gcra, burst: 1, mode: shadow}"},
		{"behind a proxy that is trusted", `set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For;`, "$http_x_forwarded_for", listed},
		{"with a field", ``, "$http_x_key", "{key: x_key, rate: 1/1m, algorithm: gcra, burst: 1}"},
	} {
		t.Run(test.name, func(t *testing.T) {
			result, _ := parsed(t, "nginx", test.before+"\nlimit_req_zone "+test.key+" zone=some:1m rate=1r/m;\nlimit_req_zone $request_method zone=every:1m rate=9r/s;\n"+
				"server { location / { limit_req zone=some; limit_req zone=every; "+app+" } }")
			got := regexp.MustCompile(`(?m)^  some: (.*)$`).FindStringSubmatch(string(result.YAML))
			if got == nil {
				got = []string{"", ""}
			}
			if got[1] != test.limit {
				t.Errorf("got %s\nwant %s\n%s", got[1], test.limit, result.YAML)
			}
			if inexact := test.limit != listed && !strings.Contains(test.limit, "x_key"); inexact && !strings.Contains(string(result.YAML), "refuses nobody") && !strings.Contains(string(result.YAML), "zone some is not carried over") {
				t.Errorf("no comment about it\n%s", result.YAML)
			}
		})
	}
}

// A modelLocation is a location, and whether it refuses everybody.
type modelLocation struct {
	modifier, path string
	guarded        bool
	port           int // to which it forwards
	inner          []modelLocation
	isInner        bool // Weir has the location around it in its place
}

// isExpression reports whether l has a regular expression.
func (l *modelLocation) isExpression() bool { return l.modifier == "~" || l.modifier == "~*" }

// nginxPicks returns the location that nginx takes for a path, nil for none; and whether it looks no further.
func nginxPicks(all []modelLocation, path string) (picked *modelLocation, final bool) {
	for i, l := range all {
		switch {
		case l.modifier == "=" && l.path == path:
			return &all[i], true
		case (l.modifier == "" || l.modifier == "^~") && strings.HasPrefix(path, l.path) && (picked == nil || len(l.path) > len(picked.path)):
			picked = &all[i]
		}
	}
	first := picked != nil && picked.modifier == "^~"
	if picked != nil {
		if inner, final := nginxPicks(picked.inner, path); final {
			return inner, true
		} else if inner != nil {
			picked = inner
		}
	}
	for i, l := range all {
		if flags := map[string]string{"~*": "(?i)"}[l.modifier]; !first && l.isExpression() && regexp.MustCompile(flags+l.path).MatchString(path) {
			if inner, _ := nginxPicks(l.inner, path); inner != nil {
				return inner, true
			}
			return &all[i], true
		}
	}
	return picked, false
}

// write writes a location; it gives it what guards it, and a port.
func (l *modelLocation) write(w *strings.Builder, random *rand.Rand) {
	guard := "auth_basic off; "
	if l.guarded {
		guard = []string{"auth_basic a;", "deny all;", "allow 10.0.0.0/8; deny all;", "access_by_lua_block { }"}[random.IntN(4)]
	}
	l.port = 9001 + strings.Count(w.String(), "location")
	fmt.Fprintf(w, "location %s \"%s\" { %s proxy_pass http://127.0.0.1:%d;\n", l.modifier, strings.ReplaceAll(l.path, `\`, `\\`), guard, l.port)
	for i := range l.inner {
		l.inner[i].guarded = l.inner[i].guarded || l.guarded // inherited
		l.inner[i].isInner = true
		l.inner[i].write(w, random)
	}
	w.WriteString("}\n")
}

// randomLocation returns a location whose path begins with prefix.
func randomLocation(random *rand.Rand, prefix string) modelLocation {
	prefixes := []string{"/", "/a", "/a/", "/ab", "/a/b", "/a/b/", "/ab/c", "/abc/", "/A/", "/b c", "/b"}
	expressions := []string{`^/a`, `^/a/`, `^/ab?/c`, `\.php$`, `^/a(/|$)`, `^/(a|b)/`, `^/ab$`, `b|c`, `^/a/b.*\.x$`, `^/a\.b`, `^/A`}
	l := modelLocation{modifier: []string{"", "", "=", "^~", "~", "~*"}[random.IntN(6)], guarded: random.IntN(2) == 0}
	l.path = prefixes[random.IntN(len(prefixes))]
	if l.isExpression() {
		l.path = expressions[random.IntN(len(expressions))]
	} else if !strings.HasPrefix(l.path, prefix) {
		l.path = prefix + "b"
	}
	return l
}

// What nginx refuses Weir refuses, whatever the locations are; and what nginx lets through goes to the same upstream, or is
// refused.
func TestConvert_NginxPicksTheSameLocation(t *testing.T) {
	paths := []string{"/", "/a", "/a/", "/ab", "/abc", "/a/b", "/a/bc", "/a/b/c", "/ab/c", "/ab/cd", "/abc/d", "/A/b", "/A", "/a.php", "/a/b/x.php", "/b/c", "/c", "/b", "/a.b", "/a/b/1.x", "/B/c", "/b c"}
	refused, passed, strict, files := 0, 0, 0, rounds.Of(40)
	for seed := range uint64(files) {
		random := rand.New(rand.NewPCG(seed, 33))
		var all []modelLocation
		var file strings.Builder
		seen := map[string]bool{}
		for range 1 + random.IntN(5) {
			l := randomLocation(random, "/")
			if id := strings.TrimPrefix(l.modifier, "^~") + l.path; seen[id] {
				continue
			} else {
				seen[id] = true
			}
			if !l.isExpression() && l.modifier != "=" && random.IntN(3) == 0 {
				l.inner = append(l.inner, randomLocation(random, l.path))
				seen[l.inner[0].path] = true
			}
			all = append(all, l)
			all[len(all)-1].write(&file, random)
		}
		result, c := parsed(t, "nginx", inServer(file.String()))
		for _, path := range paths {
			l, _ := nginxPicks(all, path)
			got := asked(t, c, strings.ReplaceAll(path, " ", "%20"))
			switch {
			case l != nil && seen[strings.TrimSuffix(path, "/")+"/"] && !strings.HasSuffix(path, "/"):
				continue // nginx redirects it
			case l != nil && l.guarded:
				refused++
				if got != "403" && got != "400" { // 400: an upstream may take it for another path
					t.Fatalf("seed %d: %s gets %s, but nginx refuses it at %+v\n%s\n%s", seed, path, got, *l, &file, result.YAML)
				}
			case got == "403" || got == "400":
				strict++
			case l != nil && !l.isInner && !l.isExpression() && !strings.Contains(l.path, " ") && strings.HasPrefix(path+"/", strings.TrimSuffix(l.path, "/")+"/") && got != fmt.Sprintf("http://127.0.0.1:%d%s", l.port, strings.ReplaceAll(path, " ", "%20")):
				t.Fatalf("seed %d: %s goes to %s, want that of %+v\n%s\n%s", seed, path, got, *l, &file, result.YAML)
			default:
				passed++
			}
		}
	}
	if refused < 2*files || passed < 5*files || strict > passed {
		t.Errorf("%d refused, %d passed, %d refused by Weir only", refused, passed, strict)
	}
}

// Any directives, in any order, make a configuration that loads.
func TestConvert_NginxResultsLoad(t *testing.T) {
	byLevel := map[string][]string{}
	for _, d := range directives(t) {
		byLevel[d[0]] = append(byLevel[d[0]], d[1])
	}
	more := func(level string, lines ...string) {
		byLevel[level] = append(byLevel[level], slices.Repeat(lines, 10)...)
	}
	more("http", `map $http_a $v { default $binary_remote_addr; x ""; }`, "limit_req_zone $v zone=none:1m rate=3r/m;", "limit_req_zone $host$arg_host zone=echo:1m rate=3r/m;", "set_real_ip_from 10.0.0.1/8;",
		"real_ip_header proxy_protocol;", "allow 10.0.0.1/8;", "deny all;", "upstream u { server a_b:80 weight=3000; server c:99999; server unix:/x; ip_hash; }", "limit_req zone=none;")
	more("server", "server_name *.b.example c;", "server_name .d.example;", "server_name ~^x a.*;", "listen 80 default_server;", "return 301 https://$host$request_uri;", "return 444;", "return 200 \"a\nb\";",
		"set $n http://u;", "limit_req zone=echo delay=1 burst=5;", "limit_conn conns 0;", "limit_req zone=one;", "proxy_set_header A-B $remote_addr;", "add_header Content-Type x;", "proxy_hide_header Date;")
	more("location", "proxy_pass $n;", "proxy_pass http://u/x/;", "proxy_pass https://x.example:444/y;", "proxy_set_header Upgrade $http_upgrade;", "limit_req zone=one burst=x;", "proxy_ssl_name y.example;")
	locations := []string{"/", "= /", "/a", "/a/", "^~ /a/b/", "~ ^/a/c", `~ \.php$`, "@n", "/ü", "/a/{x}", "/a/*", "//", "/..", "~", ""}
	loaded, files := 0, rounds.Of(200)
	for seed := range uint64(files) {
		random := rand.New(rand.NewPCG(seed, 33))
		var file strings.Builder
		add := func(level string, most int) {
			for range random.IntN(most + 1) {
				file.WriteString(byLevel[level][random.IntN(len(byLevel[level]))] + "\n")
			}
		}
		file.WriteString("http {\nlimit_req_zone $binary_remote_addr zone=one:1m rate=5r/s;\nupstream backend {\nserver a;\n")
		add("upstream", 2)
		file.WriteString("}\n")
		add("http", 6)
		for range 1 + random.IntN(3) {
			file.WriteString("server {\nlimit_req zone=one;\n")
			add("server", 4)
			for range random.IntN(5) {
				file.WriteString("location " + locations[random.IntN(len(locations))] + " {\n")
				add("location", 4)
				file.WriteString("proxy_pass http://backend;\n}\n")
			}
			file.WriteString("}\n")
		}
		file.WriteString("}\n")
		if _, err := Convert("nginx", "file", strings.NewReader(file.String())); err == nil {
			parsed(t, "nginx", file.String())
			loaded++
		}
	}
	if loaded < files/2 {
		t.Errorf("%d of %d loaded", loaded, files)
	}
}
