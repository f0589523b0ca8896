package redisstore_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each fault that the package comment lists has the test that it names.
func TestDoc_NamesItsTests(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	suite, err := filepath.Glob("../limitertest/*.go")
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range append(files, suite...) {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(b)
	}
	names := regexp.MustCompile(`(Test\w+)|limitertest (\w+)`).FindAllStringSubmatch(string(doc), -1)
	if len(names) < 17 {
		t.Errorf("only %d tests are named", len(names))
	}
	for _, name := range names {
		if name[1] != "" && !strings.Contains(text.String(), "func "+name[1]+"(t *testing.T)") {
			t.Errorf("no %s", name[1])
		}
		if name[2] != "" && !strings.Contains(text.String(), `{"`+name[2]+`", `) {
			t.Errorf("limitertest has no %s", name[2])
		}
	}
}
