package convert

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/rounds"
)

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
	refused, passed, strict := 0, 0, 0
	for seed := range uint64(rounds.Of(40)) {
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
	if refused < 100 || passed < 200 || strict > passed {
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
