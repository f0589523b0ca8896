package route

import (
	"errors"
	"strings"
	"testing"
)

func newUnguardedTable() *Table[string] {
	return newTable(
		"send! POST - /v1/send", "search! GET - /v1/Search", "user! - - /u/{id}", "tag! - - /tag/{t:[A-Z]+}/x", "me! - - /u/me", "files! - - /files/*",
		"open - - /files/Public", "any - - /v1/send", "health - - /health", "slashed - - /u/x/", "rest - - /*",
	)
}

// What a careless framework takes for a guarded pattern's path or method is found under
// that one, with the parameters as they were sent; others are found as they are written.
func TestStricter_GuardedPatternsAreFound(t *testing.T) {
	tb := newUnguardedTable()
	for line, want := range map[string]string{
		"POST /v1/send": "send", "POST /V1/send": "send", "POST /v1/SEND/": "send", "post /v1/send": "send", "pOsT /V1/Send/": "send", "POST /v1/%C5%BFend": "send",
		"GET /v1/search": "search", "HEAD /v1/Search": "search", "get /v1/SEARCH": "search",
		"GET /u/alice/": "user id=alice", "GET /U/Alice": "user id=Alice", "GET /TAG/DE/x/": "tag t=DE", "GET /files": "files *=", "GET /Files/a/b/": "files *=a/b/",
		"GET /v1/send": "any", "PUT /v1/send": "any", "GET /files/Public": "open", "GET /Health": "rest *=Health", "GET /u/x/": "slashed", "PUT /V1/SEND": "rest *=V1/SEND", "OPTIONS /v1/Search": "rest *=v1/Search",
	} {
		method, path, _ := strings.Cut(line, " ")
		q := newRequest(method, "a", path)
		found, err := tb.Find(q)
		if got := strings.TrimSpace(found + " " + params(q)); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", line, got, err, want)
		}
	}
}

// Patterns in lower case are found the same way, although most requests for them need no
// second look: each letter is one that a careless framework folds.
func TestStricter_PatternsInLowerCase(t *testing.T) {
	tb := newTable("az! - - /az", "send! POST - /v1/send", "files! - - /files/*", "rest - - /*")
	for line, want := range map[string]string{
		"GET /az": "az", "GET /Az": "az", "GET /aZ": "az", "GET /az/": "az", "GET /a[": "rest *=a[", "GET /a@": "rest *=a@",
		"POST /v1/send/": "send", "POST /v1/senD": "send", "GET /files": "files *=", "GET /files/": "files *=", "GET /fileS": "files *=", "GET /v1/send": "rest *=v1/send",
	} {
		method, path, _ := strings.Cut(line, " ")
		q := newRequest(method, "a", path)
		found, err := tb.Find(q)
		if got := strings.TrimSpace(found + " " + params(q)); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", line, got, err, want)
		}
	}
	deep := newTable("deep! - - /d/{id}/*", "rest - - /*")
	if found, err := deep.Find(newRequest("GET", "a", "/d/x")); found != "deep" || err != nil {
		t.Errorf("without the slash behind its parameter: %q, %v; want deep", found, err)
	}
}

// Of patterns that differ in case alone, a spelling that neither has means the guarded
// one, wherever it stands.
func TestStricter_TheGuardedOneOfTwins(t *testing.T) {
	for _, tb := range []*Table[string]{newTable("open - - /page", "guarded! - - /PAGE", "rest - - /*"), newTable("guarded! - - /PAGE", "open - - /page", "rest - - /*")} {
		for path, want := range map[string]string{"/page": "open", "/PAGE": "guarded", "/Page": "guarded", "/page/": "guarded", "/pages": "rest"} {
			if found, err := tb.Find(newRequest("GET", "a", path)); found != want || err != nil {
				t.Errorf("%s: %q, %v; want %s", path, found, err, want)
			}
		}
	}
}

// Where two guarded patterns could be meant, none is guessed, and the one that is
// written so is told of.
func TestStricter_BetweenTwoItRefuses(t *testing.T) {
	if found, err := newUnguardedTable().Find(newRequest("GET", "a", "/u/ME")); !errors.Is(err, ErrTarget) {
		t.Errorf("%q, %v; want ErrTarget", found, err)
	}
	if found, err := newUnguardedTable().FindExact(newRequest("GET", "a", "/u/ME")); found != "user" || err != nil {
		t.Errorf("plainly %q, %v; want user", found, err)
	}
}

// What careful clients send costs no allocation; see BenchmarkMatch for the number of
// entries.
func TestStricter_CostsNoAllocation(t *testing.T) {
	tb := newTable("send! POST - /v1/send", "search! GET - /v1/search", "user! - - /u/{id}", "files! - - /files/*", "any - - /v1/send", "rest - - /*")
	for _, path := range []string{"/v1/send", "/other/thing", "/u/4711", "/files/a/b"} {
		q := newRequest("GET", "a", path)
		if n := testing.AllocsPerRun(100, func() {
			q.Path = path
			if _, err := tb.Find(q); err != nil {
				t.Error(err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations; want none", path, n)
		}
	}
}
