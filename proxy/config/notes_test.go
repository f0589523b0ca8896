package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/test/filetest"
)

func TestNotes(t *testing.T) {
	for _, c := range []struct {
		yaml string
		want []string
	}{
		{"", nil},
		{"keys: {k: {from: header:X-K, sensitive: true}}\n", []string{"change at every restart"}},
		{"privacy: {hash_secret: a-secret-long-enough}\n", nil},
		{"store: redis\n", []string{"anyone who can read Redis"}},
		{"store: redis\nprivacy: {hash_secret: a-secret-long-enough}\n", nil},
	} {
		notes := mustParse(t, c.yaml+small).Notes()
		if len(notes) != len(c.want) {
			t.Errorf("%q: notes %q; want %d", c.yaml, notes, len(c.want))
			continue
		}
		for i, want := range c.want {
			if !strings.Contains(notes[i], want) {
				t.Errorf("%q: note %q; want one about %q", c.yaml, notes[i], want)
			}
		}
	}
}

// wantLastNote wants these words in the last note on a file.
func wantLastNote(t *testing.T, file, want string) {
	t.Helper()
	notes := mustParse(t, file).Notes()
	if last := notes[len(notes)-1]; !strings.Contains(last, want) {
		t.Errorf("note %q; want %q in it", last, want)
	}
}

// Of routes that read the query and may have a form beside it, check says that the
// form is refused.
func TestNotes_FormsBesideTheQuery(t *testing.T) {
	const file = `
keys:
  both: {from: "query:user", must_equal: "form:user"}
routes:
  - {name: searched, match: {path: /a}, upstream: echo, limits: [{key: "query:user", rate: 1/1h}]}
  - {name: got, match: {methods: [GET], path: /b}, upstream: echo, limits: [{key: "query:user", rate: 1/1h}]}
  - {name: told, match: {path: /c}, upstream: echo, form_beside_query: ignore, limits: [{key: "query:user", rate: 1/1h}]}
  - {name: compared, match: {path: /d}, upstream: echo, limits: [{key: both, rate: 1/1h}]}
  - {name: priced, match: {methods: [PUT], path: /e}, upstream: echo, limits: [{key: global, rate: 9/1h, cost: "query:size", max_cost: 9}]}
  - {name: chosen, match: {path: /f, query: {v: "1"}}, upstream: echo, limits: [{key: global, rate: 9/1h}]}
  - {name: tried, match: {path: /g}, upstream: echo, limits: [{key: "query:user", rate: 1/1h, mode: "off"}]}
  - {name: untouched, match: {path: /h}, upstream: echo, limits: [{key: client_ip, rate: 1/1h}]}
`
	wantLastNote(t, file, "refused with 400 at searched, priced, chosen:")
}

// A key at the end of a path is refused with a dot in it; check says where, and not where
// an expression tells what the upstream does, or where nothing is refused by the key.
func TestNotes_DotsInPaths(t *testing.T) {
	const file = `
lists: {known: {key: "path:id", values: ["1"], action: deny}}
routes:
  - {name: plain, match: {path: "/a/{id}"}, upstream: echo, limits: [{key: "path:id", rate: 1/1h}]}
  - {name: slash, match: {path: "/b/{id}/"}, upstream: echo, limits: [{key: {join: [client_ip, "path:id"]}, rate: 1/1h}]}
  - {name: listed, match: {path: "/c/{id}"}, upstream: echo, lists: [known]}
  - {name: regexp, match: {path: "/d/{id:[^/]+}"}, upstream: echo, limits: [{key: "path:id", rate: 1/1h}]}
  - {name: within, match: {path: "/e/{id}/x"}, upstream: echo, limits: [{key: "path:id", rate: 1/1h}]}
  - {name: unread, match: {path: "/f/{id}/{name}"}, upstream: echo, limits: [{key: "path:id", rate: 1/1h}]}
  - {name: shadow, match: {path: "/g/{id}"}, upstream: echo, limits: [{key: "path:id", rate: 1/1h, mode: shadow}]}
  - {name: rest, match: {path: "/h/*"}, upstream: echo, limits: [{key: client_ip, rate: 1/1h}]}
`
	wantLastNote(t, file, "refused with 400 at plain, slash, listed:")
}

// An upstream that drops the plus of a number may text another one than was counted; check says of
// which keys, unless the upstream gets the number in a field of its own.
func TestNotes_RegionsOfNumbers(t *testing.T) {
	const file = `
keys:
  bare: {from: "header:X-Phone", normalize: {as: e164, default_region: CN}}
  passed: {from: "header:X-Phone", normalize: {as: e164, default_region: CN}, set_header: X-Phone-E164}
  plus: {from: "header:X-Phone", normalize: e164}
  country: {of: bare, part: country}
routes:
  - {name: sms, match: {path: /a}, upstream: echo, limits: [{key: bare, rate: 1/1h}, {key: passed, rate: 1/1h}, {key: plus, rate: 1/1h}, {key: country, rate: 1/1h}]}
  - {name: call, match: {path: /b}, upstream: echo, limits: [{name: inline, key: {from: "header:X-Phone", normalize: {as: e164, default_region: CN}}, rate: 1/1h}]}
`
	wantLastNote(t, file, "set_header for bare, call.inline,")
	one, err := key.NewPhone("CN", nil, "")
	if err != nil {
		t.Fatal(err)
	}
	for digits, want := range map[string]string{"15512349876": "+8615512349876", "+15512349876": "+15512349876"} {
		if n, err := one.Parse(digits); err != nil || n.E164 != want {
			t.Errorf("%s is %v, %v; want %s", digits, n, err, want)
		}
	}
}

// lower leaves spellings apart that databases compare as equal; check says of which keys, where clients can write such
// a text.
func TestNotes_LettersOfOtherForms(t *testing.T) {
	const file = `
keys:
  named: {from: "json:/user", normalize: [trim, lower]}
  folded: {from: "json:/user", normalize: [trim, nfkc, fold]}
  header: {from: "header:X-User", normalize: lower}
  claim: {from: "jwt:sub", normalize: lower}
  digits: {from: "query:n", normalize: digits}
jwt: {secret: "0123456789abcdef0123456789abcdef"}
routes:
  - {name: a, match: {path: /a}, upstream: echo, limits: [{key: named, rate: 1/1h}, {key: folded, rate: 1/1h}, {key: header, rate: 1/1h}, {key: claim, rate: 1/1h}, {key: digits, rate: 1/1h}]}
  - {name: b, match: {path: /b}, upstream: echo, limits: [{name: form, key: {from: "form:user", normalize: lower}, rate: 1/1h}]}
  - {name: c, match: {path: /c}, upstream: echo, limits: [{name: cookie, key: client_ip, distinct: {from: "cookie:user", normalize: lower}, rate: 1/1h}]}
  - {name: d, match: {path: /d}, upstream: echo, form_beside_query: ignore, limits: [{name: query, key: {from: "query:user", normalize: lower}, rate: 1/1h}]}
`
	wantLastNote(t, file, "write normalize: [trim, nfkc, fold] for named, b.form, c.cookie, d.query,")
}

// What is called like a secret is masked where it is shown, and hashed in pushed lists; not where the file says otherwise.
func TestKeys_SecretsAreMasked(t *testing.T) {
	for from, want := range map[string]bool{
		"header:Authorization": true, "header:Proxy-Authorization": true, "header:X-Api-Key": true, "header:X-Auth-Token": true, "header:Cookie": true,
		"cookie:session": true, "cookie:lang": true, "query:access_token": true, "query:apikey": true, "json:/user/password": true, "form:passwd": true,
		"json:/accessToken": true, "path:token": true, "query:sid": true, "descriptor:api_key": true, "json:/clientSecret": true,
		"header:X-Phone": false, "query:user": false, "header:X-Max-Tokens": false, "header:X-Side": false, "jwt:session": false,
		"client_ip": false, "host": false, "json:/tokens/count": false, "header:X-Idempotency-Key": false,
	} {
		for _, c := range []struct {
			key  string
			want bool
		}{
			{`"` + from + `"`, want}, {`{from: "` + from + `"}`, want},
			{`{from: "` + from + `", sensitive: false}`, false}, {`{from: "` + from + `", sensitive: true}`, true},
			{`{from: "header:X", must_equal: "` + from + `"}`, want},
		} {
			text := "jwt: {secret: at-least-thirty-two-bytes-of-secret}\nroutes:\n  - {match: {path: '/{token}'}, upstream: echo, limits: [{key: " + c.key + ", rate: 1/1m}]}\n"
			if strings.HasPrefix(from, "descriptor:") {
				text = strings.Replace(strings.Replace(text, "path: '/{token}'", `domain: d, descriptor: {api_key: "*"}`, 1), ", upstream: echo", "", 1)
				if strings.Contains(c.key, "must_equal") {
					continue // a descriptor has no header
				}
			}
			if got := mustParse(t, text).Routes[0].Limits[0].Key; (got.Sensitive || got.Secret) != c.want {
				t.Errorf("%s: masked: %v; want %v", c.key, !c.want, c.want)
			}
		}
	}
	// Named keys that others are made of too, and limiters of Redisson, which Java programs find by the text.
	c := mustParse(t, "store: redis\nkeys: {session: 'cookie:session', both: {join: [client_ip, session]}}\nroutes:\n  - {match: {path: /a}, upstream: echo, limits: [{key: both, rate: 1/1m}, {key: 'header:X-Api-Key', rate: 1/1m, redisson_name: 'api:{key}'}]}\n")
	if pair, one := c.Routes[0].Limits[0].Key, c.Routes[0].Limits[1].Key; !pair.Join[1].Secret || !one.Secret || !one.IsConcealed() {
		t.Error("a named key, or one of Redisson, is not masked")
	}
}

func TestLine_LeavesOutWhatIsUsual(t *testing.T) {
	c := mustLoad(t, filetest.Files(t, "own.yaml", "upstreams: {demo: echo}\nroutes: [{name: a, match: {path: /a}, upstream: demo, limits: [{name: l, key: global, rate: 1/1m, expose: false, algorithm: token_bucket}]}]\n"))
	limits, routes := c.Parts(nil)[0], c.Parts(nil)[1]
	if got, want := limits["a.l"], "{name: l, key: global, rate: 1/1m, mode: enforce, on_store_failure: local, expose: false}"; got != want {
		t.Errorf("limit %s; want %s", got, want)
	}
	if got, want := routes["a"], "{name: a, match: {path: /a}, upstream: demo}"; got != want {
		t.Errorf("route %s; want %s", got, want)
	}
}

// A value of a variable belongs to the machine that answers: others see its name, in whatever form it is written.
func TestCompare_NamesVariables(t *testing.T) {
	was := mustParse(t, small)
	for text, want := range map[string]string{
		"upstreams: {a: \"http://${SET}:80\"}\n":                     `upstream a added: {targets: [{url: "http://${SET}:80"}]}`,
		"upstreams: {a: {targets: [{url: \"http://${SET}:80\"}]}}\n": `upstream a added: {targets: [{url: "http://${SET}:80"}]}`,
		"keys: {a: \"header:${SET}\"}\n":                             `key a added: {from: "header:${SET}", on_missing: reject}`,
		"keys: {a: {from: \"header:${SET}\", on_missing: skip}}\n":   `key a added: {from: "header:${SET}", on_missing: skip}`,
	} {
		if got := Compare(was, mustParse(t, text+small)); len(got) != 1 || got[0].String() != want {
			t.Errorf("%s\nis told as %v; want %s", text, got, want)
		}
	}
}

// Of a secret, wherever it stands, others see that it differs.
func TestCompare_TellsSecretsApart(t *testing.T) {
	of := func(secret string) *Config {
		jwt := "jwt: {secret: \"" + secret + "-of-32-bytes-or-more-at-random\"}"
		return mustParse(t, "keys: {u: header:U}\nprivacy: {hash_secret: "+secret+"-long-enough}\n"+jwt+"\nlimits: {l: {key: u, rate: 1/1m, step_up: {rate: 5/1m, "+jwt+"}}}\n"+
			"routes: [{name: a, match: {path: /a}, upstream: echo, limits: [l]}]\n")
	}
	var names []string
	for _, c := range Compare(of("alpha"), of("omega")) {
		names = append(names, c.Name)
		if strings.Count(c.String(), "(not shown, ") != 2 || strings.Contains(c.String(), "alpha") || strings.Contains(c.String(), "omega") {
			t.Errorf("a new secret is told as %s", c)
		}
	}
	if want := []string{"l", "jwt", "privacy"}; !slices.Equal(names, want) {
		t.Errorf("secrets of %v are told; want %v", names, want)
	}
	if all := Compare(of("alpha"), of("alpha")); len(all) != 0 {
		t.Errorf("the same secrets are told as %v", all)
	}
}

// A limit that counts under another name than before is said to start anew, with what keeps its
// counts.
func TestCompare_SaysWhichLimitsStartAnew(t *testing.T) {
	was := mustParse(t, `routes: [{name: a, match: {path: /a}, upstream: echo, limits: [{name: x, key: client_ip, rate: 2/1h}, {name: y, key: client_ip, rate: 5/1d}]}]`)
	routes := "\nroutes: [{name: a, match: {path: /a}, upstream: echo, limits: [%s]}]"
	for limits, want := range map[string]string{
		`limits: {x: {key: client_ip, rate: 2/1h}}` + strings.Replace(routes, "%s", "x", 1):                                                         "write was: a.x to keep its counts",
		`limits: {all: {key: client_ip, rate: 5/1d}}` + strings.Replace(routes, "%s", "all, {name: x, key: client_ip, rate: 2/1h}", 1):              "write was: a.y to keep its counts",
		`limits: {x: {key: client_ip, rate: 2/1h, was: a.x}}` + strings.Replace(routes, "%s", "x, {name: y, key: client_ip, rate: 5/1d}", 1):        "",
		strings.Replace(routes, "%s", "{name: x, key: client_ip, rate: 9/1h}, {name: y, key: client_ip, rate: 5/1d}, {key: global, rate: 1/1s}", 1): "",
	} {
		is := mustParse(t, limits)
		var notes []string
		for _, c := range Compare(was, is) {
			if c.Note != "" {
				notes = append(notes, c.String())
			}
		}
		if said := strings.Join(notes, "\n"); want == "" && said != "" || !strings.Contains(said, want) || want != "" && len(notes) != 1 {
			t.Errorf("%s\nthe notes are %q; want %q", limits, notes, want)
		}
		if warnings := Restarts(was, is); len(warnings) != len(notes) {
			t.Errorf("%s\nwarnings %v beside %d notes", limits, warnings, len(notes))
		}
	}
}

// A limit that has the same name, and other counts, starts anew as well.
func TestCompare_SaysWhatCountsApart(t *testing.T) {
	const text = "store: redis\nprivacy: {hash_secret: 'a secret of twenty four'}\nkeys: {ph: {from: 'header:X-Phone', normalize: e164}, pair: {join: [client_ip, ph]}}\n" +
		"routes: [{name: a, match: {path: /a}, upstream: echo, limits: [{name: x, key: ph, rates: [2/1h, 9/1d]}, {name: y, key: pair, rate: 5/1d}]}]\n"
	const begin = "starts anew: it has counts of its own under "
	was := mustParse(t, text)
	for change, want := range map[string]string{
		"9/1d]}  9/1d], algorithm: sliding_log}":           "a.x: another algorithm",
		"9/1d]}  9/1d], scope: per_instance}":              "a.x: another scope",
		"[2/1h,  [2/2h,":                                   "a.x: another window",
		"key: ph,  key: client_ip,":                        "a.x: another key",
		"[client_ip, ph]  [ph, client_ip]":                 "a.y: another key",
		"'a secret of twenty four'  'another one of them'": "privacy: privacy.hash_secret is another, or gone: counts stay only under a former one that previous_secret names",
		"'a secret of twenty four'  'another one of them', previous_secret: 'a secret of twenty four'": "",
		"2/1h, 9/1d]  9/1d, 3/60m, 20/7d]":                                         "", // the windows of before are kept
		"9/1d]}  9/1d], penalty: {ban: 1h}, on_store_failure: deny, lease: 100ms}": "",
		"'header:X-Phone'  'query:phone'":                                          "",
	} {
		old, now, _ := strings.Cut(change, "  ")
		is := mustParse(t, strings.Replace(text, old, now, 1))
		var notes, warnings []string
		for _, c := range Compare(was, is) {
			if what, _, found := strings.Cut(c.Note, ";"); found {
				notes = append(notes, c.Name+": "+strings.TrimPrefix(what, begin))
			}
		}
		for _, w := range Restarts(was, is) {
			warnings = append(warnings, w.Path+": "+strings.TrimPrefix(w.What, begin))
		}
		slices.Sort(notes)
		if got := strings.Join(notes, " "); got != want || strings.Join(warnings, " ") != want {
			t.Errorf("%s: notes %q, warnings %q; want %q", change, got, warnings, want)
		}
	}
	shared := strings.Replace(text, "privacy: {hash_secret: 'a secret of twenty four'}\n", "", 1)
	java := mustParse(t, strings.Replace(shared, "rates: [2/1h, 9/1d]", "rate: 2/1h, redisson_name: 'r:{key}'", 1))
	if got := Restarts(mustParse(t, shared), java); len(got) != 1 || !strings.HasSuffix(got[0].What, "under another redisson_name") {
		t.Errorf("another name for Redisson: %v", got)
	}
	if got := Restarts(java, mustParse(t, strings.Replace(shared, "rates: [2/1h, 9/1d]", "rate: 2/2h, redisson_name: 'r:{key}'", 1))); len(got) != 0 {
		t.Errorf("the same name for Redisson: %v", got)
	}
}
