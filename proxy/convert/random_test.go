package convert

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A modelLocation is a location, and whether it refuses everybody.
type modelLocation struct {
	modifier, path string
	guarded        bool
	port           int // to which it forwards
}

// nginxPicks returns the location that nginx takes for a path; nil for none.
func nginxPicks(all []modelLocation, path string) *modelLocation {
	var longest *modelLocation
	for i, l := range all {
		switch {
		case l.modifier == "=" && l.path == path:
			return &all[i]
		case (l.modifier == "" || l.modifier == "^~") && strings.HasPrefix(path, l.path) && (longest == nil || len(l.path) > len(longest.path)):
			longest = &all[i]
		}
	}
	if longest != nil && longest.modifier == "^~" {
		return longest
	}
	for i, l := range all {
		flags := map[string]string{"~": "", "~*": "(?i)"}
		if flag, ok := flags[l.modifier]; ok && regexp.MustCompile(flag+l.path).MatchString(path) {
			return &all[i]
		}
	}
	return longest
}

// What nginx refuses Weir refuses, whatever the locations are; and what nginx lets through goes to the same upstream, or is
// refused.
func TestConvert_NginxPicksTheSameLocation(t *testing.T) {
	prefixes := []string{"/", "/a", "/a/", "/ab", "/a/b", "/a/b/", "/ab/c", "/abc/", "/A/", "/b c", "/b"}
	expressions := []string{`^/a`, `^/a/`, `^/ab?/c`, `\.php$`, `^/a(/|$)`, `^/(a|b)/`, `^/ab$`, `b|c`, `^/a/b.*\.x$`, `^/a\.b`, `^/A`}
	paths := []string{"/", "/a", "/a/", "/ab", "/abc", "/a/b", "/a/bc", "/a/b/c", "/ab/c", "/ab/cd", "/abc/d", "/A/b", "/A", "/a.php", "/a/b/x.php", "/b/c", "/c", "/b", "/a.b", "/a/b/1.x", "/B/c", "/b c"}
	refused, passed, strict := 0, 0, 0
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 33))
		var all []modelLocation
		var file strings.Builder
		seen := map[string]bool{}
		for range 1 + random.IntN(5) {
			l := modelLocation{modifier: []string{"", "", "=", "^~", "~", "~*"}[random.IntN(6)], guarded: random.IntN(2) == 0}
			l.path = prefixes[random.IntN(len(prefixes))]
			if strings.HasPrefix(l.modifier, "~") {
				l.path = expressions[random.IntN(len(expressions))]
			}
			id := strings.TrimPrefix(l.modifier, "^~") + l.path
			if seen[id] {
				continue
			}
			seen[id] = true
			l.port = 9001 + len(all)
			all = append(all, l)
			guard := ""
			if l.guarded {
				guard = []string{"auth_basic a;", "deny all;", "allow 10.0.0.0/8; deny all;", "access_by_lua_block { }"}[random.IntN(4)]
			}
			fmt.Fprintf(&file, "location %s \"%s\" { %s proxy_pass http://127.0.0.1:%d; }\n", l.modifier, strings.ReplaceAll(l.path, `\`, `\\`), guard, l.port)
		}
		result, c := parsed(t, "nginx", inServer(file.String()))
		for _, path := range paths {
			l, got := nginxPicks(all, path), asked(t, c, strings.ReplaceAll(path, " ", "%20"))
			switch {
			case l != nil && seen[strings.TrimSuffix(path, "/")+"/"] && !strings.HasSuffix(path, "/"):
				continue // nginx redirects it
			case l != nil && l.guarded:
				refused++
				if got != "403" && got != "400" { // 400: an upstream may take it for another path
					t.Fatalf("seed %d: %s gets %s, but nginx refuses it at %v\n%s\n%s", seed, path, got, *l, &file, result.YAML)
				}
			case got == "403" || got == "400":
				strict++
			case l != nil && !strings.HasPrefix(l.modifier, "~") && !strings.Contains(l.path, " ") && strings.HasPrefix(path+"/", strings.TrimSuffix(l.path, "/")+"/") && got != fmt.Sprintf("http://127.0.0.1:%d%s", l.port, strings.ReplaceAll(path, " ", "%20")):
				t.Fatalf("seed %d: %s goes to %s, want that of %v\n%s\n%s", seed, path, got, *l, &file, result.YAML)
			default:
				passed++
			}
		}
	}
	if refused < 500 || passed < 1000 || strict > passed {
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
	more("location", "proxy_pass $n;", "proxy_pass http://u/x/;", "proxy_pass https://x.example:444/y;", "grpc_pass grpcs://h.example;", "proxy_set_header Upgrade $http_upgrade;", "limit_req zone=one burst=x;", "proxy_ssl_name y.example;")
	locations := []string{"/", "= /", "/a", "/a/", "^~ /a/b/", "~ ^/a/c", `~ \.php$`, "@n", "/ü", "/a/{x}", "/a/*", "//", "/..", "~", ""}
	loaded := 0
	for seed := range uint64(400) {
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
	if loaded < 200 {
		t.Errorf("%d of 400 loaded", loaded)
	}
}
