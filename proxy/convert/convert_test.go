package convert

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/config"
)

var update = flag.Bool("update", false, "write the expected results")

// programOf returns the program of a file in testdata, by the beginning of its name.
func programOf(t *testing.T, path string) string {
	t.Helper()
	name := strings.TrimPrefix(filepath.Base(path), "bad-")
	program := ""
	for _, p := range From() {
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
			if _, err := config.Parse("weir.yaml", result.YAML, func(string) (string, bool) { return "", false }); err != nil {
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

func TestConvert_UnknownProgram(t *testing.T) {
	if _, err := Convert("squid", "squid.conf", strings.NewReader("")); err == nil || !strings.Contains(err.Error(), "ingress-nginx") {
		t.Errorf("error %v, want one that names the programs", err)
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
		for i := range From() {
			f.Add(uint8(i), data)
		}
	}
	f.Fuzz(func(t *testing.T, program uint8, data []byte) {
		result, err := Convert(From()[int(program)%len(From())], "file", strings.NewReader(string(data)))
		if err != nil {
			return
		}
		if _, err := config.Parse("weir.yaml", result.YAML, func(string) (string, bool) { return "", false }); err != nil {
			t.Errorf("%v\n%s", err, result.YAML)
		}
		result.needsAll(t)
	})
}
