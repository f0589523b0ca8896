package test

import (
	"fmt"
	"go/ast"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// retired are words that were names once and that nobody of the field would search
// for, and what to say instead. A name of several words counts for each of them.
func retired() map[string]string {
	return map[string]string{
		"affinity": "hash_by", "ages": "aging", "boarded": "batched", "crew": "group", "deafen": "dropSYN", "dear": "cached", "deputy": "reporting",
		"desk": "pushAPI", "diary": "statistics", "disguises": "confusable", "dismiss": "leave", "disown": "stripSpoofed", "door": "downstream", "doom": "delete",
		"ear": "invalidations", "edition": "revision", "enlist": "join", "fragile": "a type that says what fails", "fleet": "collector", "former": "previous", "front": "downstream",
		"house": "layout", "hurried": "a deadline", "hurry": "shortenRetry", "introduced": "proxyProto", "inventive": "newKeys", "invention": "newKeys",
		"journal": "log", "journey": "forwarding", "keeper": "AdminStore", "lane": "batcher", "lanes": "batchers", "ledger": "statistics", "lent": "inherited",
		"lockset": "shards", "minted": "newKeys", "misnamed": "wrongName", "murmur": "redisLog", "novelty": "newKeys", "office": "leadership", "parcel": "bundle",
		"patience": "timeout", "picker": "files", "restartless": "immutable", "scene": "a name for what is set up", "screen": "lists", "shaded": "shadowErrors",
		"shelf": "files", "sincere": "unambiguous", "solo": "memory", "standby": "fallback", "sticky": "hash_by", "supervisor": "systemd", "thrift": "scavenge", "tidy": "normalize",
		"tired": "ejected", "trip": "request", "twophase": "reserve", "unfit": "shadowErrors", "vet": "newKeys", "whisper": "stdLog", "wire": "backend or frames", "world": "testServer or Env",
		"futile": "failed", "halved": "PeerHalfClosed", "offence": "penalty", "offences": "penalties", "presence": "PeerState",
		"unlisten": "removeListener", "untrailed": "forbidden trailers",
		"crowds": "noLocalQueue", "foretells": "checkForecast", "partings": "results", "rearm": "scheduleRenewal", "repay": "putBatch",
		"unsettled": "pendingReleases",
	}
}

// allowed are names with such a word that the field itself gives: Go's own, and
// those of Redis and HTTP.
func allowed() []string {
	return []string{
		"RoundTrip", "RoundTripper", "roundTrip", "TestChunked_RoundTrip", "TestSize_RoundTrip", "Front", "TestNginx_InFront",
		"screen", "wireSize", // of a terminal; of a message
		"Screen", "NewScreen", "SimulationScreen", "NewSimulationScreen", // tcell
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

// A retired word with no other meaning in English, or none that a comment of ours
// needs, stays out of comments as well.
func TestLayout_RetiredWordsStayOutOfComments(t *testing.T) {
	gone := []string{"crew", "deputy", "enlist", "lockset", "novelty", "restartless", "oneByOne", "twophase", "errInventive", "takeApart", "ownClaim", "errSaid", "takenBack"}
	found := tally{}
	for _, s := range sources(t) {
		for _, group := range s.file.Comments {
			words := strings.FieldsFunc(group.Text(), func(r rune) bool { return !unicode.IsLetter(r) })
			for _, word := range gone {
				if slices.Contains(words, word) {
					found.add(s, group.Pos(), fmt.Sprintf("a comment says %q", word))
				}
			}
		}
	}
	found.check(t, nil)
}

// Who searches for the field's own term finds the file that does it.
func TestLayout_TermsOfTheFieldLeadToTheirFiles(t *testing.T) {
	terms := map[string]string{
		"all or none": "lock/multi.go", "configuration drift": "proxy/cluster/drift.go", "count-down latch": "lock/latch.go", "E.164": "proxy/key/phone.go",
		"edit distance": "proxy/config/internal/form/suggest.go", "fencing token": "lock/fenced.go", "garbage collection": "proxy/cluster/sweep.go", "heartbeat": "proxy/cluster/member.go",
		"JSON Pointer": "proxy/key/pointer.go", "JSON Web Key Set": "proxy/key/jwks.go", "leader election": "proxy/cluster/leader.go", "normalization": "proxy/key/normalize.go",
		"readers-writer lock": "lock/readwrite.go", "redaction": "proxy/key/mask.go", "Redlock": "lock/multi.go", "secret rotation": "proxy/key/hash.go",
		"token bucket": "limiter/doc.go", "two-phase commit": "proxy/cluster/push.go", "watchdog": "lock/watchdog.go", "hop-by-hop": "proxy/http1/hop_by_hop.go",
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
