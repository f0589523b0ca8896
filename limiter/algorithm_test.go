package limiter_test

import (
	"os"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/limiter"
)

func TestParseAlgorithm(t *testing.T) {
	for a := limiter.TokenBucket; a <= limiter.SlidingLog; a++ {
		if got, err := limiter.ParseAlgorithm(a.String()); got != a || err != nil {
			t.Errorf("%s: %v %v", a, got, err)
		}
	}
	for _, bad := range []string{"", "leaky", "GCRA", "algorithm 8"} {
		if _, err := limiter.ParseAlgorithm(bad); err == nil || !strings.Contains(err.Error(), "write token_bucket") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// Every algorithm has a name that is parsed back and a sign of its own in Redis, which
// never changes: keys would be lost. What is unknown has no traits.
func TestAlgorithm_Traits(t *testing.T) {
	signs := ""
	for a := range limiter.NumAlgorithms {
		if got, err := limiter.ParseAlgorithm(a.String()); err != nil || got != a {
			t.Errorf("ParseAlgorithm(%q) = %v, %v", a.String(), got, err)
		}
		signs += string(a.Sign())
	}
	if want := "012345c7"; !strings.HasPrefix(signs, want) {
		t.Errorf("signs %s, want %s", signs, want)
	}
	for i := range signs {
		if strings.Count(signs, signs[i:i+1]) > 1 {
			t.Errorf("two algorithms have the sign %c", signs[i])
		}
	}
	unknown := limiter.Algorithm(200)
	if unknown.String() != "algorithm 200" || unknown.Sign() != 0 || unknown.HasBurst() || unknown.HasLeases() || unknown.HasValues() || unknown.HasSteps() ||
		unknown.IsPacked() || unknown.IsRedisson() || unknown.MayDouble() {
		t.Errorf("%v has traits", unknown)
	}
	if _, err := limiter.ParseAlgorithm(""); err == nil {
		t.Error("an empty name is parsed")
	}
}

// Whoever adds an algorithm is told where it must be named: in the error for an unknown one, and in the tables of the
// package's document and of README.md.
func TestAlgorithm_IsNamedInEachTable(t *testing.T) {
	_, err := limiter.ParseAlgorithm("leaky")
	document, readme := mustRead(t, "doc.go"), strings.ToLower(mustRead(t, "README.md"))
	for a := range limiter.NumAlgorithms {
		if name := a.String(); !strings.Contains(err.Error(), name) || !strings.Contains(document, "//\t"+name+" ") {
			t.Errorf("%s is not in the error %v, or not in the table of doc.go", name, err)
		}
		if row := "\n| `" + strings.ReplaceAll(a.String(), "_", "") + "` |"; !strings.Contains(readme, row) {
			t.Errorf("README.md has no row of %s", a)
		}
	}
}

func mustRead(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
