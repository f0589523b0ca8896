package config

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/test/certtest"
	"github.com/weir-proxy/weir/test/filetest"
)

// environment is what the files under testdata see.
func environment(name string) (string, bool) {
	value, ok := map[string]string{
		"SET": "set", "NUMBER": "7", "EMPTY": "", "TRICK": "a\nroutes: []", "DOLLAR": "${SET}",
	}[name]
	return value, ok
}

// load is Load with the environment of the tests.
func load(path string) (*Config, error) {
	r := newLoader(environment)
	return r.whole(path, r.open(path, ""))
}

func mustLoad(t *testing.T, path string) *Config {
	t.Helper()
	c, err := load(path)
	if err != nil {
		t.Fatalf("%s has problems:\n%v", path, err)
	}
	return c
}

// golden compares got with the file at path, or writes it with -update.
func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want := filetest.Read(t, path)
	if string(got) != string(want) {
		t.Errorf("%s\ngot:\n%s\nwant:\n%s", path, got, want)
	}
}

// TestLoad_SaysAllThatIsWrong compares what is said of each faulty file, word
// for word. Four files have a secret in the wrong place, which is not said.
func TestLoad_SaysAllThatIsWrong(t *testing.T) {
	files := mustGlob(t, "testdata/bad-*.yaml")
	if len(files) < 45 {
		t.Errorf("only %d faulty files", len(files))
	}
	for _, path := range files {
		t.Run(filepath.Base(path), func(t *testing.T) {
			c, err := load(path)
			var problems Problems
			if c != nil || !errors.As(err, &problems) || len(problems) == 0 {
				t.Fatalf("got %v, %v, want problems only", c, err)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("a secret is shown in\n%v", err)
			}
			golden(t, strings.TrimSuffix(path, ".yaml")+".want", []byte(err.Error()+"\n"))
		})
	}
}

// TestLoad_Good compares what is made of each good file, and what is warned of.
func TestLoad_Good(t *testing.T) {
	for _, path := range mustGlob(t, "testdata/good-*.yaml") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			c := mustLoad(t, path)
			got := c.Effective()
			base := strings.TrimSuffix(path, ".yaml")
			golden(t, base+".effective", got)
			var warnings strings.Builder
			for _, w := range c.Warnings {
				warnings.WriteString(w.String() + "\n")
			}
			for _, r := range c.Remarks {
				warnings.WriteString(r.String() + " (note)\n")
			}
			golden(t, base+".warnings", []byte(warnings.String()))
		})
	}
}

func mustGlob(t *testing.T, pattern string) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	return files
}

// A list may be longer than a configuration.
func TestLoad_AListOfThirtyThousandValues(t *testing.T) {
	dir := t.TempDir()
	path, listed := filepath.Join(dir, "weir.yaml"), filepath.Join(dir, "keys.txt")
	var values strings.Builder
	for i := range 30_000 {
		fmt.Fprintf(&values, "%0300d\n", i)
	}
	if values.Len() <= form.MaxSize {
		t.Fatalf("the list has %d bytes; want more than %d", values.Len(), form.MaxSize)
	}
	text := "lists: {keys: {key: 'header:X-Key', file: keys.txt, action: deny}}\nroutes: [{match: {path: /a}, upstream: echo, lists: [keys]}]\n"
	for name, content := range map[string]string{path: text, listed: values.String()} {
		filetest.Write(t, content, name)
	}
	if n := mustLoad(t, path).Routes[0].Lists[0].Members.Len(); n != 30_000 {
		t.Errorf("%d values; want 30000", n)
	}
	if err := os.WriteFile(listed, append([]byte(values.String()), " # \xe9\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.Contains(err.Error(), "is not text in UTF-8") {
		t.Errorf("%v; want that it is no text", err)
	}
	if err := os.Truncate(listed, maxList+1); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path); err == nil || !strings.HasSuffix(err.Error(), `"keys.txt" is longer than 128 MiB; name a shorter file`) {
		t.Errorf("%v; want that the file is too long", err)
	}
}

const secured = "upstreams:\n  s: {targets: [\"https://a\"], tls: {ca: certs/ca.pem, cert: certs/cert.pem, key: certs/key.pem, server_name: b}}\n" + small

func TestLoad_CertificatesOfUpstreams(t *testing.T) {
	cert, key := certtest.New(t)
	other, _ := certtest.New(t)
	path := filetest.Files(t, "weir.yaml", secured, "certs/ca.pem", cert, "certs/cert.pem", cert, "certs/key.pem", key)
	c := mustLoad(t, path)
	got := c.Upstreams["s"].TLS
	if got.Roots == nil || got.Roots.Equal(x509.NewCertPool()) || got.Certificate == nil || got.ServerName != "b" {
		t.Errorf("got %+v", got)
	}
	certs := filepath.Join(filepath.Dir(path), "certs")
	for _, name := range []string{"ca.pem", "cert.pem", "key.pem"} {
		if !slices.Contains(c.Files, filepath.Join(certs, name)) {
			t.Errorf("%s is none of the files %v: a change of it would not be noticed", name, c.Files)
		}
	}
	filetest.Write(t, other, certs, "ca.pem")
	if mustLoad(t, path).Hash == c.Hash {
		t.Error("another certificate is no change")
	}
	filetest.Write(t, other, certs, "cert.pem")
	c, err := Load(path)
	if got := wantProblems(t, c, err).Error(); !strings.Contains(got, "upstreams.s.tls.cert: certificate and key do not match") || strings.Contains(got, "PRIVATE") {
		t.Errorf("got %s", got)
	}
}

// A problem tells no part of the value of a variable, whatever is done to the text that has it: it is escaped, cut, or compared in
// lower case.
func TestLoad_ProblemsTellNoValues(t *testing.T) {
	for _, value := range []string{`Token"of\ours`, "Token-of-ours\nof two lines", "Tökèn-of-ours-" + strings.Repeat("which is long ", 10), "Token-of-ours", "token-of-ours:80/x"} {
		t.Setenv("WEIR_TEST_TOKEN", value)
		for _, text := range []string{
			"version: \"${WEIR_TEST_TOKEN}\"\n", "version: \"x${WEIR_TEST_TOKEN}\"\n", "version: \"" + strings.Repeat("x", 70) + "${WEIR_TEST_TOKEN}\"\n",
			"listen: {https: \":8443\", tls: {acme: {domains: [\"${WEIR_TEST_TOKEN}\"]}}}\n",
			"listen: {http: \"http://${WEIR_TEST_TOKEN}\"}\n", "redis: {addrs: [\"redis://${WEIR_TEST_TOKEN}:6379\"]}\n",
		} {
			c, err := LoadText("weir.yaml", []byte(text+small))
			got := wantProblems(t, c, err).Error()
			if strings.Contains(strings.ToLower(got), strings.ToLower(value[:6])) {
				t.Errorf("of %q, whose variable is %q, it tells %s", text, value, got)
			}
		}
	}
}
