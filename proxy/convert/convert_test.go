package convert

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/test/rounds"
)

var update = flag.Bool("update", false, "write the expected results")

// programs returns the names of the programs whose files can be converted.
func programs() []string { return slices.Sorted(maps.Keys(converters())) }

// programOf returns the program of a file in testdata, by the beginning of its name.
func programOf(t *testing.T, path string) string {
	t.Helper()
	name := strings.TrimPrefix(filepath.Base(path), "bad-")
	program := ""
	for _, p := range programs() {
		if strings.HasPrefix(name, p+"-") && len(p) > len(program) {
			program = p
		}
	}
	if program == "" {
		t.Fatalf("%s is of no program", path)
	}
	return program
}

// inputs returns the files in testdata, without the results: those that begin with bad-, or
// the others.
func inputs(t *testing.T) (good, bad []string) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.*")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		switch {
		case strings.HasSuffix(f, ".want"):
		case strings.HasPrefix(filepath.Base(f), "bad-"):
			bad = append(bad, f)
		default:
			good = append(good, f)
		}
	}
	if len(good) < 6 || len(bad) < 8 {
		t.Fatalf("%d files and %d bad ones, want at least 6 and 8", len(good), len(bad))
	}
	return good, bad
}

// expect compares got with the content of the file PATH.want.
func expect(t *testing.T, path, got string) {
	t.Helper()
	path += ".want"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func convertFile(t *testing.T, path string) (Result, error) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return Convert(programOf(t, path), filepath.Base(path), f)
}

// Each result is as expected and a configuration of Weir, and each of its notes stands in it
// as a comment.
func TestConvert_ResultsAreConfigurations(t *testing.T) {
	good, _ := inputs(t)
	for _, path := range good {
		t.Run(filepath.Base(path), func(t *testing.T) {
			result, err := convertFile(t, path)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, path, string(result.YAML))
			if _, err := config.LoadText("weir.yaml", result.YAML); err != nil {
				t.Errorf("the result is no configuration: %v\n%s", err, result.YAML)
			}
			result.needsAll(t)
			if comments := strings.Count(string(result.YAML), "# ") - 1; comments != len(result.Notes) {
				t.Errorf("%d comments for %d notes", comments, len(result.Notes))
			}
		})
	}
}

// A file that is not one of the program is an error with its line and what was expected.
func TestConvert_FaultsSayWhatWasExpected(t *testing.T) {
	_, bad := inputs(t)
	for _, path := range bad {
		t.Run(filepath.Base(path), func(t *testing.T) {
			_, err := convertFile(t, path)
			var fault *Error
			if !errors.As(err, &fault) {
				t.Fatalf("error %v, want an *Error", err)
			}
			expect(t, path, err.Error()+"\n")
		})
	}
}

// Values of several entries need a route each, not one for each pair of them.
func TestConvert_RatelimitValuesNeedFewRoutes(t *testing.T) {
	var file strings.Builder
	file.WriteString("domain: edge\ndescriptors:\n  - key: a\n    descriptors:\n")
	for i := range 50 {
		fmt.Fprintf(&file, "      - {key: b, value: v%d, rate_limit: {unit: minute, requests_per_unit: 1}}\n", i)
	}
	for i := range 50 {
		fmt.Fprintf(&file, "  - {key: a, value: v%d, descriptors: [{key: b, rate_limit: {unit: hour, requests_per_unit: 1}}]}\n", i)
	}
	result, err := Convert("ratelimit", "file", strings.NewReader(file.String()))
	if err != nil {
		t.Fatal(err)
	}
	if routes := strings.Count(string(result.YAML), "- name:"); routes != 100 {
		t.Errorf("%d routes, want 100", routes)
	}
}

// A domain whose routes would be too many is an error.
func TestConvert_RatelimitBoundsRoutes(t *testing.T) {
	var file strings.Builder
	file.WriteString("domain: edge\ndescriptors:\n")
	for i := range 200 {
		fmt.Fprintf(&file, "  - {key: a, value: v%d, descriptors: [{key: b, rate_limit: {unit: hour, requests_per_unit: 1}}]}\n", i)
	}
	file.WriteString("  - key: a\n    descriptors:\n")
	for i := range 200 {
		fmt.Fprintf(&file, "      - {key: b, value: v%d, rate_limit: {unit: minute, requests_per_unit: 1}}\n", i)
	}
	if _, err := Convert("ratelimit", "file", strings.NewReader(file.String())); err == nil || !strings.Contains(err.Error(), "10000 routes") {
		t.Errorf("error %v, want one about too many routes", err)
	}
}

// Whatever is read, the result is an error or a configuration of Weir in which nothing is unneeded.
func FuzzConvert(f *testing.F) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil {
		f.Fatal(err)
	}
	files = append(files, "testdata/directives/nginx.txt")
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for i := range programs() {
			f.Add(uint8(i), data)
		}
	}
	f.Fuzz(func(t *testing.T, program uint8, data []byte) {
		result, err := Convert(programs()[int(program)%len(programs())], "file", strings.NewReader(string(data)))
		if err != nil {
			return
		}
		if _, err := config.LoadText("weir.yaml", result.YAML); err != nil {
			t.Errorf("%v\n%s", err, result.YAML)
		}
		result.needsAll(t)
	})
}

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
	c, err := config.LoadText("weir.yaml", result.YAML)
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
	var out strings.Builder
	for line := range strings.Lines(string(r.YAML)) {
		if !placed.MatchString(line) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// placed is a comment about a line.
var placed = regexp.MustCompile(`^ *# file:[0-9]+: `)

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
	unchanged, _ := parsed(t, "nginx", none)
	before := unchanged.settings()
	for i, d := range directives(t) {
		file, line := at(d[0], d[1])
		result, err := Convert("nginx", "file", strings.NewReader(file))
		if err != nil {
			t.Fatalf("%v\n%s", err, file)
		}
		if (i+1)%max(1, 10/rounds.Of(1)) == 0 { // TestConvert_NginxResultsLoad reads results of several
			parsed(t, "nginx", file)
		}
		name := strings.TrimRight(strings.Fields(d[1])[0], ";")
		if result.settings() == before && !result.isListed(name, line) {
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
