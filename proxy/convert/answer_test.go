package convert

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/view"
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
