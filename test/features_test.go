package test

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A feature of a limit, and the words by which code knows it: identifiers and tags of fields that match.
type feature struct {
	name  string
	word  string // a regular expression over identifiers
	own   string // a regular expression over the base names of its own files
	known int    // files that know it besides its own, those of config and of the decisions about it left out; may only fall
}

// features returns the rows of a table that -v prints. Each number may only fall, to 8. A word is the feature's alone: a
// net.Resolver solves nothing, what a lock or a connection waited is a field of its own, the bytes that a client
// may occupy are no budget of a limit, and release is no lease. Package lock knows no limits, and is left out.
func features() []feature {
	return []feature{
		{"refund_on, count, settle", `(?i)refundon|settle`, `^(refund|settle|usage)`, 27},
		{"fallback, share, mirror", `(?i)fallback|mirror|outofshare|shareof`, `^(fallback|mirror|outage)`, 29},
		{"return_on, notes, sends", `(?i)returnon|shadownote|sends\b|notes?\b`, `^(return|notes|report)`, 53},
		{"shadow", `(?i)shadow`, `^shadow`, 29},
		{"penalty, ban", `(?i)penal|\bbans?\b|banned`, `^(penal|ban)`, 44},
		{"plans", `(?i)\bplans?\b|plansource|assign`, `^plan`, 29},
		{"budget, prices", `(?i)price`, `^prices`, 7},
		{"Redisson names, scope", `(?i)redisson|\bscope`, `^(redisson|scope)`, 31},
		{"conversion", `(?i)conversion`, `^conversion`, 27},
		{"step_up", `(?i)stepup|stepsup|\bsolver`, `^(step_up|challenge)`, 8},
		{"descriptors, handles", `(?i)descriptor`, `^(decide|descriptor|messages|handler|envoy|dialect)`, 7},
		{"concurrent", `(?i:concurrent)(ly)?\b|\bleases?\b|(Has|has|held|start)Leases?\b`, `^(lease|concurrent)`, 20},
		{"idempotency", `(?i)idempoten`, `^(idempotency|early)`, 8},
		{"lists", `(?i)\blists?\b|listed|allowlist|denylist`, `^list`, 47},
		{"cooldown", `(?i)cooldown`, `^(cooldown|penalize)`, 5},
		{"overrides", `(?i)override`, `^(overrides|plans)`, 6},
		{"rotation of two secrets", `(?i)previoussecret|bothsecrets|previouskey`, `^$`, 4},
		{"rate_from", `(?i)ratefrom`, `^$`, 1},
		{"distinct", `(?i)distinct`, `^distinct`, 8},
		{"lease", `\bAhead\b|\bahead[A-Z]`, `^ahead`, 4},
		{"wait", `(?i:waitqueue|maxwaiting)|\b(log)?Waited|\bWaitTime\b`, `^(wait|waitqueue)`, 7},
		{"usage", `\bUsage\b|responseUsage|OnBody|IsReserved`, `^(usage|scanner)`, 8},
		{"explain", `(?i)explain`, `^explain`, 7},
	}
}

// A feature of a limit has a file of its own; what else must know it is a cost for each further
// feature. -v prints the table.
func TestShape_FeaturesAreKnownInFewFiles(t *testing.T) {
	known := map[string][]string{} // files that name something
	for _, s := range sources(t) {
		if !s.isTest() && !strings.HasPrefix(s.dir, "test") && s.dir != "lock" && s.dir != "limiter/limitertest" && !strings.HasPrefix(s.dir, "proxy/config") {
			for name := range names(s.file) {
				known[name] = append(known[name], s.path)
			}
		}
	}
	for _, f := range features() {
		word, own := regexp.MustCompile(f.word), regexp.MustCompile(f.own)
		found := map[string]bool{}
		for name, files := range known {
			if !word.MatchString(name) {
				continue
			}
			for _, file := range files {
				if !own.MatchString(path.Base(file)) {
					found[file] = true
				}
			}
		}
		if t.Logf("%3d %s", len(found), f.name); len(found) > f.known {
			t.Errorf("%s is known in %d files besides its own, at most %d:\n%s", f.name, len(found), f.known, strings.Join(slices.Sorted(maps.Keys(found)), "\n"))
		}
	}
}

// names returns the identifiers and tags in a file.
func names(file *ast.File) map[string]bool {
	found := map[string]bool{}
	ast.Inspect(file, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.Ident:
			found[node.Name] = true
		case *ast.Field:
			if node.Tag != nil {
				found[node.Tag.Value] = true
			}
		}
		return true
	})
	return found
}

// A step is compiled into a route, or is not there: no bool says what the limits of a route have. What a request owes
// may only become simpler.
func TestShape_RouteAndAdmissionAreSimple(t *testing.T) {
	most, seen := map[string]int{"Route": 8, "Admission": 29}, 0 // fields, embedded ones too
	for _, s := range sources(t) {
		if s.dir != "proxy/limit" || s.isTest() {
			continue
		}
		ast.Inspect(s.file, func(node ast.Node) bool {
			spec, ok := node.(*ast.TypeSpec)
			if !ok || most[spec.Name.Name] == 0 {
				return true
			}
			count := 0
			seen++
			for _, field := range spec.Type.(*ast.StructType).Fields.List {
				count += max(len(field.Names), 1)
				if kind, ok := field.Type.(*ast.Ident); ok && kind.Name == "bool" && spec.Name.Name == "Route" {
					t.Errorf("%s is a bool", field.Names[0])
				}
			}
			if t.Logf("%d fields: %s", count, spec.Name); count > most[spec.Name.Name] {
				t.Errorf("%s has %d fields, at most %d", spec.Name, count, most[spec.Name.Name])
			}
			return true
		})
	}
	if seen != len(most) {
		t.Errorf("%d of these types are there", seen)
	}
}

// A tally is what breaks a rule, by package.
type tally map[string][]string

// add notes what is wrong at a place in s.
func (f tally) add(s source, at token.Pos, what string) {
	f[s.dir] = append(f[s.dir], fmt.Sprintf("%s:%d: %s", s.path, s.files.Position(at).Line, what))
}

// check fails for each package in which more breaks the rule than is known, and for
// each in which less does: then the number is to be lowered, so that it only falls.
// A rule that holds everywhere has no numbers.
func (f tally) check(t *testing.T, known map[string]int) {
	t.Helper()
	for _, dir := range slices.Sorted(maps.Keys(f)) {
		if len(f[dir]) <= known[dir] {
			continue
		}
		for _, what := range f[dir] {
			t.Error(what)
		}
		if known[dir] > 0 {
			t.Errorf("%s has %d of these, and no more than %d are known", dir, len(f[dir]), known[dir])
		}
	}
	for dir, n := range known {
		if len(f[dir]) < n {
			t.Errorf("%s has only %d of these any more; write %d for it, or take it off the list", dir, len(f[dir]), len(f[dir]))
		}
	}
}
