package convert

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/weir-proxy/weir/proxy/config"
)

// working is a file in which @LEVEL is where another directive may stand.
const working = `@main
events { }
http {
@http
limit_req_zone $binary_remote_addr zone=one:1m rate=5r/s;
limit_conn_zone $binary_remote_addr zone=conns:1m;
upstream backend {
@upstream
server 127.0.0.1:9000;
server 127.0.0.1:9010;
}
server {
@server
server_name api.example.com;
location / {
@location
limit_req zone=one burst=5;
proxy_pass http://backend;
}
location = /other { proxy_pass http://backend; }
}
}
`

// at returns working with a directive at a level, and its line.
func at(level, directive string) (file string, line int) {
	file = strings.Replace(working, "@"+level+"\n", directive+"\n", 1)
	if before, _, found := strings.Cut(file, directive+"\n"); found {
		line = strings.Count(before, "\n") + 1
	}
	return regexp.MustCompile(`(?m)^@\w+$`).ReplaceAllString(file, ""), line
}

// parsed converts a file and reads the result as Weir does.
func parsed(t *testing.T, program, file string) (Result, *config.Config) {
	t.Helper()
	result, err := Convert(program, "file", strings.NewReader(file))
	if err != nil {
		t.Fatalf("%v\n%s", err, file)
	}
	c, err := config.Parse("weir.yaml", result.YAML, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, result.YAML, file)
	}
	result.needsAll(t)
	return result, c
}

// needsAll fails for what is defined and that nothing names.
func (r Result) needsAll(t *testing.T) {
	t.Helper()
	var file map[string]yaml.Node
	if err := yaml.Unmarshal(r.YAML, &file); err != nil {
		t.Fatal(err)
	}
	for _, section := range []string{"keys", "lists", "limits", "upstreams"} {
		defined := file[section]
		for i := 0; i < len(defined.Content); i += 2 {
			name := regexp.MustCompile(`[ \[{,]` + regexp.QuoteMeta(defined.Content[i].Value) + `(?:[\],}]|$)`)
			if !slices.ContainsFunc(strings.Split(r.settings(), "\n"), func(line string) bool { return !strings.HasPrefix(line, "#") && name.MatchString(line) }) {
				t.Errorf("%s of %s is needed by nothing:\n%s", defined.Content[i].Value, section, r.YAML)
			}
		}
	}
}

// settings is what the configuration says, without comments about lines.
func (r Result) settings() string {
	return regexp.MustCompile(`(?m)^ *# file:[0-9]+: .*\n`).ReplaceAllString(string(r.YAML), "")
}

// isListed reports whether a note is about something in a line.
func (r Result) isListed(name string, line int) bool {
	inBrackets := regexp.MustCompile(regexp.QuoteMeta(name) + fmt.Sprintf(`[^,]*\(%d\)`, line))
	return slices.ContainsFunc(r.Notes, func(n Note) bool {
		return inBrackets.MatchString(n.What) || n.Line == line && strings.Contains(n.What, name)
	})
}

// directives returns the directives of nginx in testdata, by level.
func directives(t *testing.T) (all [][2]string) {
	t.Helper()
	data, err := os.ReadFile("testdata/directives/nginx.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		levels, directive, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		for _, level := range strings.Split(levels, ",") {
			all = append(all, [2]string{level, strings.TrimSpace(directive)})
		}
	}
	if len(all) < 1500 {
		t.Fatalf("%d directives, want at least 1500", len(all))
	}
	return all
}

// Each directive of nginx changes what is written, or is listed with its line, wherever it stands.
func TestConvert_NginxDirectivesAreTranslatedOrListed(t *testing.T) {
	none, _ := at("nowhere", "nothing")
	before, _ := parsed(t, "nginx", none)
	for _, d := range directives(t) {
		file, line := at(d[0], d[1])
		result, _ := parsed(t, "nginx", file)
		name := strings.TrimRight(strings.Fields(d[1])[0], ";")
		if result.settings() == before.settings() && !result.isListed(name, line) {
			t.Errorf("%s at %s, line %d, is neither translated nor listed:\n%s", d[1], d[0], line, result.YAML)
		}
	}
}

// Access control that is not translated is an error, and its routes refuse: of a location that one, of a server all.
func TestConvert_NginxAccessControlIsNeverLost(t *testing.T) {
	protecting := regexp.MustCompile(`^(auth_basic|auth_request|auth_jwt|auth_ldap|access_by_lua_block|modsecurity|limit_except|if|ssl_verify_client) `)
	found := 0
	for _, d := range directives(t) {
		if !protecting.MatchString(d[1]) || strings.HasPrefix(d[1], "auth_request_set") {
			continue
		}
		found++
		file, line := at(d[0], d[1])
		result, c := parsed(t, "nginx", file)
		if lost := result.Lost(); len(lost) != 1 || !strings.HasPrefix(lost[0], fmt.Sprintf("file:%d: ", line)) {
			t.Errorf("%s at %s: lost %q, want it in line %d", d[1], d[0], lost, line)
		}
		for _, r := range c.Routes {
			refuses := r.Respond != nil && r.Respond.Status == 403
			if want := d[0] != "location" || r.Match.Path == "/*"; refuses != want {
				t.Errorf("%s at %s: %s refuses %v, want %v\n%s", d[1], d[0], r.Name, refuses, want, result.YAML)
			}
		}
	}
	if found < 20 {
		t.Errorf("%d directives, want at least 20", found)
	}
}
