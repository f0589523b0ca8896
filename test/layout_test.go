package test

import (
	"fmt"
	"go/ast"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

func TestLayout_TopLevelHoldsOnlyWhatIsAgreed(t *testing.T) {
	agreed := []string{
		"go.mod", "go.sum", "main.go", "proxy", "limiter", "lock", "test",
		"config.example.yaml", "Dockerfile", "docker-compose.yml",
		"README.md", "LICENSE", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "Makefile",
	}
	made := []string{"weir", "weir.yaml"} // by building and by running; git ignores them
	entries, err := os.ReadDir("..")
	check(t, err)
	var names []string
	for _, entry := range entries {
		name := entry.Name()
		names = append(names, name)
		if !strings.HasPrefix(name, ".") && !slices.Contains(agreed, name) && !slices.Contains(made, name) {
			t.Errorf("%s stands at the top level; the layout has no place for it", name)
		}
	}
	for _, name := range agreed {
		if !slices.Contains(names, name) {
			t.Errorf("%s is missing at the top level", name)
		}
	}
}

// What starts Redis servers must not end up in the binary.
func TestLayout_NoProductCodeUsesTestTools(t *testing.T) {
	for _, s := range sources(t) {
		if s.isTest() || ignored(s) || strings.HasPrefix(s.dir, "test/") {
			continue
		}
		for _, path := range s.imports() {
			if strings.HasPrefix(path, module+"/test/") {
				t.Errorf("%s imports %s, which is for tests", s.path, path)
			}
		}
	}
}

// A test that sleeps is slow or wrong; only inside a bubble of testing/synctest
// is sleeping a way to say what time it is. Receiving from time.After is the same
// sleep, but for a select: there it bounds a wait for something else.
func TestLayout_NoTestSleepsOrSkips(t *testing.T) {
	found := tally{}
	for _, s := range sources(t) {
		if !s.isTest() && !strings.HasPrefix(s.dir, "test/") && s.dir != "limiter/limitertest" {
			continue
		}
		bubbled := slices.Contains(s.imports(), "testing/synctest")
		selected := cases(s)
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if method, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, method.Sel.Name) {
					found.add(s, n.Pos(), "skips; fix the test or delete the promise")
				}
				if isFrom(n.Fun, "time", "Sleep") && !bubbled {
					found.add(s, n.Pos(), "sleeps; wait for a condition, or use testing/synctest")
				}
			case *ast.UnaryExpr:
				call, ok := n.X.(*ast.CallExpr)
				if ok && n.Op == token.ARROW && isFrom(call.Fun, "time", "After") && !bubbled && !selected[n] {
					found.add(s, n.Pos(), "sleeps by time.After; wait for a condition in a select, by a ticker, or use testing/synctest")
				}
			}
			return true
		})
	}
	found.check(t, map[string]int{"limiter/redisstore": 5, "proxy/http1": 2})
}

// cases are the receives that a select chooses from.
func cases(s source) map[ast.Node]bool {
	all := map[ast.Node]bool{}
	ast.Inspect(s.file, func(n ast.Node) bool {
		if c, ok := n.(*ast.CommClause); ok && c.Comm != nil {
			ast.Inspect(c.Comm, func(n ast.Node) bool {
				if n != nil {
					all[n] = true
				}
				return true
			})
		}
		return true
	})
	return all
}

// retired are words that are tempting as names and that nobody of the field would search
// for, and what to say instead. A name of several words counts for each of them.
func retired() map[string]string {
	return map[string]string{
		"affinity": "hash_by", "crew": "group", "deputy": "reporting", "desk": "pushAPI", "diary": "statistics", "door": "downstream",
		"ear": "invalidations", "edition": "revision", "fleet": "collector", "former": "previous", "front": "downstream", "house": "layout",
		"hurry": "shortenRetry", "journal": "log", "journey": "forwarding", "keeper": "AdminStore", "lane": "batcher", "lanes": "batchers",
		"ledger": "statistics", "lent": "inherited", "offence": "penalty", "offences": "penalties", "office": "leadership", "parcel": "bundle",
		"patience": "timeout", "picker": "files", "presence": "PeerState", "repay": "putBatch", "scene": "a name for what is set up", "screen": "lists",
		"shelf": "files", "solo": "memory", "standby": "fallback", "sticky": "hash_by", "supervisor": "systemd", "tidy": "normalize",
		"trip": "request", "vet": "newKeys", "whisper": "stdLog", "world": "testServer or Env",
	}
}

// allowed are names with such a word that the field itself gives: Go's own, and
// those of Redis and HTTP.
func allowed() []string {
	return []string{
		"RoundTrip", "RoundTripper", "roundTrip", "TestChunked_RoundTrip", "TestSize_RoundTrip", "Front", "TestNginx_InFront",
		"screen",                                                         // of a terminal
		"Screen", "SetScreen", "SimulationScreen", "NewSimulationScreen", // tcell and tview
	}
}

// Identifiers and files are called by the words of the field, and those that were
// given up do not come back. What is left of them is counted by package, each name
// once.
func TestLayout_RetiredWordsStayAway(t *testing.T) {
	found, words, known := tally{}, retired(), map[string]bool{}
	look := func(s source, n ast.Node, name string) {
		id := s.dir + " " + name
		if known[id] || slices.Contains(allowed(), name) {
			return
		}
		for _, word := range wordsOf(name) {
			if instead, gone := words[word]; gone && !known[id] {
				known[id] = true
				found.add(s, n.Pos(), fmt.Sprintf("%s: %q is retired; say %s", name, word, instead))
			}
		}
	}
	for _, s := range sources(t) {
		look(s, s.file, strings.TrimSuffix(strings.TrimSuffix(filepath.Base(s.path), ".go"), "_test"))
		ast.Inspect(s.file, func(n ast.Node) bool {
			if name, ok := n.(*ast.Ident); ok {
				look(s, n, name.Name)
			}
			return true
		})
	}
	found.check(t, nil)
}

// retiredLua are words that names in Lua do not have any more, and what to say instead.
func retiredLua() map[string]string {
	return map[string]string{
		"alike": "single_limit", "base": "cached_sum", "box": "packed", "faded": "expired", "frame": "prelude", "fresh": "new", "its": "what it is of",
		"lone": "one", "mark": "tombstone", "marks": "tombstones", "own": "what it is of", "pause": "step", "record": "note", "settle": "refund",
		"shape": "variant", "standing": "current", "straight": "one", "tag": "field", "tell": "publish_change", "usual": "fast", "whole": "complete",
	}
}

func TestLayout_RetiredWordsOfLuaStayAway(t *testing.T) {
	beside := regexp.MustCompile(`--.*|'[^']*'`) // comments and strings
	words := retiredLua()
	err := filepath.WalkDir("../limiter/redisstore/lua", func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".lua" {
			return err
		}
		text, err := os.ReadFile(path)
		names := regexp.MustCompile(`\w+`).FindAllString(filepath.Base(path)+" "+beside.ReplaceAllString(string(text), ""), -1)
		for _, name := range names {
			for _, word := range wordsOf(name) {
				if instead, gone := words[word]; gone {
					t.Errorf("%s: %s: %q is retired; say %s", path, name, word, instead)
				}
			}
		}
		return err
	})
	check(t, err)
}

// wordsOf are the words of a name in camel case or with underscores, in small
// letters: newHTTPServer is new, http, server.
func wordsOf(name string) []string {
	var words []string
	letters := []rune(name)
	begin := 0
	for i, r := range letters {
		follows := i > 0 && unicode.IsUpper(r) && (!unicode.IsUpper(letters[i-1]) || i+1 < len(letters) && unicode.IsLower(letters[i+1]))
		if (follows || r == '_') && i > begin {
			words, begin = append(words, strings.ToLower(string(letters[begin:i]))), i
		}
		if r == '_' {
			begin = i + 1
		}
	}
	if begin < len(letters) {
		words = append(words, strings.ToLower(string(letters[begin:])))
	}
	return words
}

func TestWordsOf(t *testing.T) {
	for name, want := range map[string][]string{
		"crew": {"crew"}, "newCrew": {"new", "crew"}, "HTTPDoor": {"http", "door"}, "lane_test": {"lane", "test"}, "TestLane_KeepsRates": {"test", "lane", "keeps", "rates"},
		"http1Door": {"http1", "door"}, "_": nil, "X": {"x"}, "inFlight": {"in", "flight"},
	} {
		if got := wordsOf(name); !slices.Equal(got, want) {
			t.Errorf("%s is %q; want %q", name, got, want)
		}
	}
}

// Who searches for the field's own term finds the file that does it.
func TestLayout_TermsOfTheFieldLeadToTheirFiles(t *testing.T) {
	terms := map[string]string{
		"all or none": "lock/multi.go", "configuration drift": "proxy/cluster/push.go", "count-down latch": "lock/semaphore.go", "E.164": "proxy/key/phone.go",
		"edit distance": "proxy/config/internal/form/unknown.go", "fencing token": "lock/kinds.go", "garbage collection": "proxy/cluster/sweep.go", "heartbeat": "proxy/cluster/node.go",
		"JSON Pointer": "proxy/key/json.go", "JSON Web Key Set": "proxy/key/jwks.go", "leader election": "proxy/cluster/leader.go", "normalization": "proxy/key/normalize.go",
		"readers-writer lock": "lock/kinds.go", "redaction": "proxy/key/value.go", "Redlock": "lock/multi.go", "secret rotation": "proxy/key/value.go",
		"ext_authz": "proxy/decide/handler.go", "auth_request": "proxy/decide/handler.go", "forward auth": "proxy/decide/handler.go",
		"allowlist": "proxy/config/lists.go", "denylist": "proxy/config/lists.go", "access control list": "proxy/config/lists.go",
		"Too Many Requests": "proxy/respond/refusal.go", "problem details": "proxy/respond/response.go", "RateLimit-Policy": "proxy/respond/ratelimit_headers.go",
		"thundering herd": "proxy/respond/ratelimit_headers.go", "consistent hash": "proxy/upstream/balancer.go", "health check": "proxy/upstream/balancer.go",
		"connection pool": "proxy/http1/pool.go", "keep-alive": "proxy/http1/conn.go", "request smuggling": "proxy/http1/framing.go", "slowloris": "proxy/http1/server.go",
		"graceful shutdown": "proxy/frontend/server.go", "PROXY protocol": "proxy/frontend/server.go", "rapid reset": "proxy/frontend/reset_tracker.go",
		"circuit breaker": "limiter/redisstore/outage.go", "hot key": "limiter/redisstore/refusal_cache.go", "leaky bucket": "limiter/gcra.go",
		"sliding window": "limiter/sliding_window.go", "preflight": "proxy/lists.go", "exemplar": "proxy/metrics/histogram.go", "traceparent": "proxy/trace/exporter.go",
		"token bucket": "limiter/doc.go", "two-phase commit": "proxy/cluster/push.go", "watchdog": "lock/hold.go", "hop-by-hop": "proxy/http1/name.go",
	}
	texts := map[string]string{}
	for _, s := range sources(t) {
		var comments []string
		for _, group := range s.file.Comments {
			comments = append(comments, strings.Join(strings.Fields(group.Text()), " "))
		}
		texts[s.path] = strings.ToLower(strings.Join(comments, "\n"))
	}
	for term, path := range terms {
		if !strings.Contains(texts[path], strings.ToLower(term)) {
			t.Errorf("no comment of %s says %q", path, term)
		}
	}
}

// An algorithm is one file in package limiter. Elsewhere code asks for its traits, so
// that a new algorithm is one file, one row of the table and one line in each switch of
// key_state.go.
func TestAlgorithms_AreNamedInTheirRooms(t *testing.T) {
	rooms{
		dir: "limiter",
		// The second is the table of their Lua, the third that of their oracles.
		tables: []string{"limiter/algorithm.go", "limiter/redisstore/internal/scripts/scripts.go", "limiter/limitertest/oracle.go"},
		own: map[string][]string{
			"TokenBucket": {"permit_log", "token_bucket"}, "SlidingLog": {"permit_log", "sliding_log"}, "FixedWindow": {"sliding_window"},
			"SlidingWindow": {"sliding_window"}, "GCRA": {"gcra"}, "Concurrent": {"algorithm", "algorithms"}, "Distinct": {"distinct", "algorithm", "algorithms"}, "Cooldown": {"cooldown", "algorithm", "algorithms"},
		},
	}.check(t, 35)
}

// A source of keys is a row of the table and, in extract.go or a file of its own, what reads
// it. Elsewhere code asks for its traits.
func TestKeySources_AreNamedInTheirRoom(t *testing.T) {
	rooms{
		dir:    "proxy/key",
		tables: []string{"proxy/key/spec.go", "proxy/key/extract.go"},
		own: map[string][]string{
			"Header": nil, "Query": nil, "Path": nil, "Cookie": {"cookie"}, "Form": {"body"}, "JSON": {"json"}, "JWT": {"token"},
			"ClientIP": nil, "Host": nil, "Method": nil, "Descriptor": nil, "Global": nil,
		},
	}.check(t, 24)
}

// rooms says where the values of an enum may be named.
type rooms struct {
	dir    string              // of the enum's package
	tables []string            // files with a row for each value
	own    map[string][]string // the names of each value's files in any package, as they end
}

// check fails if more than most lines of the product name a value outside of its rooms.
func (r rooms) check(t *testing.T, most int) {
	t.Helper()
	found := map[string]int{}
	count := 0
	for _, s := range sources(t) {
		if s.isTest() || ignored(s) || strings.HasPrefix(s.dir, "test/") || slices.Contains(r.tables, s.path) {
			continue
		}
		lines := map[int]bool{}
		for _, n := range r.named(s) {
			if !r.isOwn(n.Name, s.path) {
				lines[s.files.Position(n.Pos()).Line] = true
			}
		}
		if len(lines) > 0 {
			found[s.path] = len(lines)
			count += len(lines)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(found)) {
		t.Logf("%3d %s", found[file], file)
	}
	t.Logf("%d lines", count)
	if count > most {
		t.Errorf("%d lines name a value outside of its file, want at most %d: ask for a trait", count, most)
	}
}

// isOwn reports whether a file is a room of value: gcra.go, oracle_gcra.go.
func (r rooms) isOwn(value, file string) bool {
	name := "_" + strings.TrimSuffix(path.Base(file), ".go")
	return slices.ContainsFunc(r.own[value], func(end string) bool { return strings.HasSuffix(name, "_"+end) })
}

// named lists the identifiers in s that name a value.
func (r rooms) named(s source) (out []*ast.Ident) {
	skip := map[ast.Node]bool{} // names of fields and methods
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			skip[n.Sel] = true
			if _, ok := r.own[n.Sel.Name]; ok && s.dir != r.dir && isFrom(n, path.Base(r.dir), n.Sel.Name) {
				out = append(out, n.Sel)
			}
		case *ast.FuncDecl:
			skip[n.Name] = true
		case *ast.Field:
			for _, name := range n.Names {
				skip[name] = true
			}
		case *ast.Ident:
			if _, ok := r.own[n.Name]; ok && s.dir == r.dir && !skip[n] {
				out = append(out, n)
			}
		}
		return true
	})
	return out
}
