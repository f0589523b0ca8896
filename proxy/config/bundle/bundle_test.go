package bundle

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/test/certtest"
	"github.com/weir-proxy/weir/test/filetest"
)

// ownConfig is the configuration of a machine, in a folder of its own.
func ownConfig(t *testing.T, text string) *config.Config {
	t.Helper()
	return mustLoad(t, filetest.Files(t, "own.yaml", text))
}

const travelling = `include: ["conf.d/*.yaml"]
keys: {phone: "header:X-Phone"}
upstreams: {demo: echo}
lists: {qa: {key: phone, file: lists/qa.txt, action: bypass}}
routes: [{name: a, match: {path: /a}, upstream: demo, lists: [qa], limits: [{key: phone, rate: 1/1m}]}]
`

func TestPack_TakesWhatBelongsToTheFile(t *testing.T) {
	b, err := Pack(filetest.Files(t, "weir.yaml", travelling, "conf.d/b.yaml", "routes: [{name: b, match: {path: /b}, upstream: demo}]\n",
		"lists/qa.txt", "+1 555 0100\n", "other.txt", "no part of it"))
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"conf.d/b.yaml", "lists/qa.txt", "weir.yaml"}; b.Main != "weir.yaml" || !slices.Equal(form.SortedKeys(b.Files), want) {
		t.Errorf("packed %s and %q; want %q", b.Main, form.SortedKeys(b.Files), want)
	}
	at := ownConfig(t, "listen: {http: ':1234'}\nadmin: {http: '127.0.0.1:4321'}\n"+small)
	c := unpacked(t, at, b)
	if len(c.Routes) != 2 || c.Routes[0].Lists[0].Members.Len() != 1 {
		t.Errorf("unpacked %d routes; want both, and the list's value", len(c.Routes))
	}
	if c.Listen.HTTP != ":1234" || c.Admin.HTTP != "127.0.0.1:4321" {
		t.Errorf("listens on %s and %s; want as the machine's own file says", c.Listen.HTTP, c.Admin.HTTP)
	}
	if again, err := Unpack(ownConfig(t, small), b); err != nil || again.Hash != c.Hash || c.Hash != b.Hash() {
		t.Errorf("elsewhere the hash is another, %v", err)
	}
	b.Files["lists/qa.txt"] += "+1 555 0101\n"
	if b.Hash() == c.Hash {
		t.Error("another list has the same hash")
	}
}

// A problem names the file as it was named.
func TestPack_NamesFilesAsGiven(t *testing.T) {
	at := filepath.Join(t.TempDir(), "nope.yaml")
	if _, err := Pack(at); err == nil || !strings.HasPrefix(err.Error(), at+": cannot be read: ") {
		t.Errorf("Pack = %v; want %s", err, at)
	}
}

func TestPack_KeepsVariablesAsTheyAre(t *testing.T) {
	const text = "privacy: {hash_secret: \"${TRAVELLING_SECRET}\"}\n" + small
	b, err := Pack(filetest.Files(t, "weir.yaml", text)) // the variable is not set here
	if err != nil || b.Files["weir.yaml"] != text {
		t.Fatalf("Pack = %+v, %v", b, err)
	}
	if _, err := Unpack(ownConfig(t, small), b); err == nil || !strings.Contains(err.Error(), "weir.yaml:1:24: ") || !strings.Contains(err.Error(), "TRAVELLING_SECRET") {
		t.Errorf("where it is not set: %v; want its place and name", err)
	}
	t.Setenv("TRAVELLING_SECRET", "a secret of sixteen characters")
	c, err := Unpack(ownConfig(t, small), b)
	if err != nil || c.Privacy.HashSecret != "a secret of sixteen characters" || len(c.Bare) != 0 {
		t.Errorf("where it is set: %v", err)
	}
}

func TestUnpack_NamesBareSecrets(t *testing.T) {
	b := Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": "privacy: {hash_secret: hunter2hunter2hunter2}\n" + small}}
	c, err := Unpack(ownConfig(t, small), b)
	if err != nil || len(c.Bare) != 1 || c.Bare[0].Path != "privacy.hash_secret" || strings.Contains(c.Bare[0].String(), "hunter2") {
		t.Errorf("bare secrets: %v, %v; want the one, unsaid", c.Bare, err)
	}
}

// Where a bundle has no secret, keys keep the names that they have under the secrets of the machine.
func TestUnpack_KeepsTheSecretsOfTheMachine(t *testing.T) {
	own := ownConfig(t, "privacy: {hash_secret: the-secret-of-the-machine, previous_secret: the-former-one-of-it}\n"+small)
	type secrets struct {
		current, previous string
		rotates           bool
	}
	of := secrets{"the-secret-of-the-machine", "the-former-one-of-it", true}
	for privacy, want := range map[string]secrets{
		"": of, "privacy: {log_client: none}\n": of, "privacy: {hash_secret: ''}\n": {}, "privacy: {previous_secret: the-former-one-of-it}\n": {previous: "the-former-one-of-it", rotates: true},
		"privacy: {hash_secret: one-that-was-pushed}\n": {current: "one-that-was-pushed"},
	} {
		c := unpacked(t, own, Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": privacy + small}})
		if got := (secrets{c.Privacy.HashSecret, c.Privacy.Previous, c.Privacy.Rotates}); got != want {
			t.Errorf("%q: %+v; want %+v", privacy, got, want)
		}
		if bare := strings.Contains(privacy, "pushed") || strings.Contains(privacy, "previous"); bare != (len(c.Bare) > 0) {
			t.Errorf("%q: bare secrets: %v", privacy, c.Bare)
		}
	}
}

// What belongs to a machine stays there: certificates are read beside its file.
func TestUnpack_ReadsCertificatesWhereItIs(t *testing.T) {
	b := Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": "upstreams: {s: {targets: ['https://a'], tls: {ca: tls/ca.pem}}}\nroutes: [{match: {path: /}, upstream: s}]\n"}}
	at := ownConfig(t, small)
	_, err := Unpack(at, b)
	if err == nil || !strings.Contains(err.Error(), "tls/ca.pem") {
		t.Fatalf("without the file: %v; want that it is missing", err)
	}
	ca, _ := certtest.New(t)
	beside := filetest.Write(t, ca, filepath.Dir(at.Files[0]), "tls/ca.pem")
	c, err := Unpack(at, b)
	if err != nil || !slices.Contains(c.Files, beside) {
		t.Errorf("with the file: %v, watched: %v", err, c)
	}
	if c.Hash != b.Hash() || c.Sum == c.Hash {
		t.Error("the hash is not that of the bundle alone, or the sum is")
	}
}

func TestUnpack_ProblemsHaveTheirPlaces(t *testing.T) {
	b := Bundle{Main: "weir.yaml", Files: map[string]string{
		"weir.yaml": "include: ['conf.d/*.yaml']\n" + small, "conf.d/b.yaml": "routes: [{match: {path: /b}, upstream: nowhere}]\n",
	}}
	var ps config.Problems
	if _, err := Unpack(ownConfig(t, small), b); !errors.As(err, &ps) || ps[0].File != "conf.d/b.yaml" || ps[0].Line != 1 {
		t.Errorf("Unpack = %v; want the place in conf.d/b.yaml", err)
	}
	if _, err := Unpack(ownConfig(t, small), Bundle{Main: "x", Files: map[string]string{"y": ""}}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a bundle without its main file: %v; want ErrInvalid", err)
	}
	big := Bundle{Main: "x", Files: map[string]string{"x": strings.Repeat(" ", MaxSize/2), "friends.txt": strings.Repeat(" ", MaxSize)}}
	if err := big.Check(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), `12.1 MiB together, of which "friends.txt" has 8.1 MiB; 8 MiB can be pushed`) {
		t.Errorf("a bundle that is too large: %v; want which file is, and what can be pushed", err)
	}
}

func TestPack_NeedsWhatTheFileNames(t *testing.T) {
	path := filetest.Files(t, "weir.yaml", travelling)
	if _, err := Pack(path); err == nil || !strings.Contains(err.Error(), "lists/qa.txt") {
		t.Errorf("Pack = %v; want that the list's file is missing", err)
	}
	if _, err := Pack(filepath.Join(filepath.Dir(path), "none.yaml")); err == nil || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("Pack = %v; want that the file is missing", err)
	}
}

func TestCompare_TellsEachPart(t *testing.T) {
	load := func(text string) *config.Config { return ownConfig(t, text) }
	was := load("upstreams: {demo: echo}\nroutes:\n- {name: a, match: {path: /a}, upstream: demo, limits: [{name: l, key: global, rate: 1/1m}, {name: gone, key: global, rate: 1/1h}]}\n- {name: old, match: {path: /old}, upstream: demo}\n")
	is := load("upstreams: {demo: echo}\ndefaults: {expose: false}\nroutes:\n- {name: a, match: {path: /a}, upstream: demo, limits: [{name: l, key: global, rate: 2/1m}, {name: new, key: global, rate: 1/1h}]}\n")
	var got []string
	for _, c := range config.Compare(was, is) {
		text, _, _ := strings.Cut(c.String(), ":")
		got = append(got, text)
	}
	want := []string{"limit a.gone removed", "a.l", "limit a.new added", "route old removed", "section defaults"}
	if !slices.Equal(got, want) {
		t.Errorf("Compare tells %q; want %q", got, want)
	}
	if changes := config.Compare(was, is); !strings.Contains(changes[1].Was, "rate: 1/1m") || !strings.Contains(changes[1].Is, "rate: 2/1m") {
		t.Errorf("limit a.l: %q -> %q; want the rates", changes[1].Was, changes[1].Is)
	}
	if changes := config.Compare(was, was); len(changes) != 0 {
		t.Errorf("nothing changed: %v", changes)
	}
	for from, want := range map[string]string{
		"rate: 2/1m":                  "a.l: 1/1m → 2/1m",
		"rates: [1/1m, 9/1h]":         "a.l: 1/1m → 1/1m, 9/1h",
		"rate: 1/1m, mode: shadow":    "a.l: mode: enforce → shadow",
		"rate: 2/1m, algorithm: gcra": "a.l: 1/1m → 2/1m; algorithm: default → gcra (starts anew: it has counts of its own under another algorithm; change it back, or expect its rate to be granted once more)",
	} {
		is := load("upstreams: {demo: echo}\nroutes:\n- {name: a, match: {path: /a}, upstream: demo, limits: [{name: l, key: global, " + from + "}, {name: gone, key: global, rate: 1/1h}]}\n- {name: old, match: {path: /old}, upstream: demo}\n")
		if changes := config.Compare(was, is); len(changes) != 1 || changes[0].String() != want {
			t.Errorf("%s: %v; want %q", from, changes, want)
		}
	}
}

// Whoever sends a configuration learns nothing of this machine's files: neither what
// is in them nor whether they are there.
func TestUnpack_DoesNotProbeThisMachine(t *testing.T) {
	at := ownConfig(t, small)
	dir := filepath.Dir(at.Files[0])
	outside := filepath.Join(t.TempDir(), "there.txt")
	filetest.Write(t, "secret\n", outside)
	if err := errors.Join(os.Symlink(outside, filepath.Join(dir, "link.txt")), os.WriteFile(filepath.Join(dir, "local.txt"), []byte("x\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	up, err := filepath.Rel(dir, outside)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"upstreams: {s: {targets: ['https://a'], tls: {ca: 'FILE'}}}\nroutes: [{match: {path: /}, upstream: s}]\n",
		"upstreams: {s: {targets: ['https://a'], tls: {cert: 'FILE', key: 'FILE'}}}\nroutes: [{match: {path: /}, upstream: s}]\n",
		"redis: {tls: {enabled: true, ca: 'FILE'}}\nstore: redis\n" + small,
		"lists: {l: {key: 'header:X-A', file: 'FILE', action: deny}}\n" + small,
		"jwt: {keys: ['FILE']}\n" + small,
		"jwt: {jwks: 'FILE'}\n" + small,
	} {
		said := map[string]string{}
		for name, file := range map[string]string{"there": outside, "not": outside + ".none", "above": up, "above, not": up + ".none"} {
			_, err := Unpack(at, Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": strings.ReplaceAll(text, "FILE", file)}})
			if err == nil {
				t.Errorf("%s with %s is taken", text, file)
				continue
			}
			said[name] = regexp.MustCompile(`:\d+: `).ReplaceAllString(strings.ReplaceAll(err.Error(), file, "FILE"), ": ")
		}
		if said["there"] != said["not"] || said["above"] != said["above, not"] {
			t.Errorf("%s\nthere:     %s\nnot there: %s", text, said["there"], said["not"])
		}
	}
	if _, err := Unpack(at, Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": "include: ['" + outside + "']\n" + small}}); err == nil {
		t.Error("a file of this machine is included")
	}
	for file, want := range map[string]string{"link.txt": "not part of the pushed configuration", "local.txt": "was not sent with this configuration"} { // a list comes along, or is none
		text := "lists: {l: {key: 'header:X-A', file: " + file + ", action: deny}}\n" + small
		if _, err := Unpack(at, Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": text}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s as a list: %v", file, err)
		}
	}
	if _, err := Unpack(at, Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": "upstreams: {s: {targets: ['https://a'], tls: {ca: link.txt}}}\n" + small}}); err == nil || !strings.Contains(err.Error(), "not part of the pushed configuration") {
		t.Errorf("a link that leads out of the folder: %v", err)
	}
}

// What this machine's own file names may be named, wherever it is.
func TestUnpack_ReadsWhatTheOwnFileNames(t *testing.T) {
	ca, _ := certtest.New(t)
	outside := filepath.Join(t.TempDir(), "ca.pem")
	filetest.Write(t, ca, outside)
	text := "upstreams: {s: {targets: ['https://a'], tls: {ca: '" + outside + "'}}}\nroutes: [{match: {path: /}, upstream: s}]\n"
	if _, err := Unpack(ownConfig(t, text), Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": text}}); err != nil {
		t.Error(err)
	}
}

func TestBundle_IsBounded(t *testing.T) {
	many := Bundle{Main: "a", Files: map[string]string{"a": ""}}
	for i := range maxFiles {
		many.Files[strings.Repeat("x", i+1)] = ""
	}
	if err := many.Check(); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "1001 files") {
		t.Errorf("of many files: %v; want ErrInvalid", err)
	}
	// Files that each stay below the bound of one do not pass it together.
	b := Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": "include: ['p*.yaml']\n" + small}}
	const values = 400
	list := "{key: client_ip, action: deny, values: [" + strings.Repeat("10.0.0.1, ", values) + "]}\n"
	for _, name := range []string{"p", "pp", "ppp"} {
		part := "lists:\n  " + name + ": &l " + list
		for i := range form.MaxValues * 2 / 5 / values {
			part += fmt.Sprintf("  %s%d: *l\n", name, i)
		}
		b.Files[name+".yaml"] = part
	}
	if _, err := Unpack(ownConfig(t, small), b); err == nil || !strings.Contains(err.Error(), "more values than a config may have") {
		t.Errorf("of many values: %.200v; want that there are too many", err)
	}
}

func TestBundle_SameWhateverTheFileIsCalled(t *testing.T) {
	b := Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": "a", "list.txt": "b"}}
	for name, c := range map[string]struct {
		other Bundle
		same  bool
	}{
		"itself":       {b, true},
		"renamed":      {Bundle{Main: "strict.yaml", Files: map[string]string{"strict.yaml": "a", "list.txt": "b"}}, true},
		"another root": {Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": "c", "list.txt": "b"}}, false},
		"another list": {Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": "a", "list.txt": "c"}}, false},
		"a file more":  {Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": "a", "list.txt": "b", "c": ""}}, false},
	} {
		if b.Same(c.other) != c.same || c.other.Same(b) != c.same {
			t.Errorf("%s: want the same: %t", name, c.same)
		}
	}
}

// What variables hold on a machine is not told to whoever asks what would change
// there, in whatever field they are named.
func TestCompare_ShowsVariablesAsTheyAreWritten(t *testing.T) {
	t.Setenv("WEIR_TEST_HELD", "/hunter2")
	t.Setenv("WEIR_TEST_NUMBER", "4711")
	const named = `alerts: {webhook: "https://a.example${WEIR_TEST_HELD}", repeat: 3h}
client_ip: {trusted_proxies: "10.0.0.0/8", header: X-Real}
keys: {k: "header:X-${WEIR_TEST_NUMBER}"}
upstreams: {u: {targets: ["http://10.0.0.1${WEIR_TEST_HELD}"], timeouts: {response: "${WEIR_TEST_NUMBER}s"}}}
routes:
  - name: r
    match: {path: "/p${WEIR_TEST_HELD}", headers: {X-A: "${WEIR_TEST_HELD}"}}
    respond: {body: "x ${WEIR_TEST_HELD}", status: 200}
    limits: [{name: l, key: k, rate: "${WEIR_TEST_NUMBER}/1m"}]
`
	text := strings.Replace(named, "http://10.0.0.1${WEIR_TEST_HELD}", "http://10.0.0.1:${WEIR_TEST_NUMBER}", 1)
	at := ownConfig(t, small)
	is := unpacked(t, at, Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": text}})
	var told strings.Builder
	for _, c := range config.Compare(at, is) {
		told.WriteString(c.String() + "\n")
	}
	for _, held := range []string{"hunter2", "4711"} {
		if strings.Contains(told.String(), held) {
			t.Errorf("told %s:\n%s", held, told.String())
		}
	}
	for _, want := range []string{`"x ${WEIR_TEST_HELD}"`, `"${WEIR_TEST_NUMBER}/1m"`, `"${WEIR_TEST_NUMBER}s"`, `"/p${WEIR_TEST_HELD}"`, `"header:X-${WEIR_TEST_NUMBER}"`, `:${WEIR_TEST_NUMBER}"`} {
		if !strings.Contains(told.String(), want) {
			t.Errorf("not told %s:\n%s", want, told.String())
		}
	}
}

func TestUnpack_ProblemsNameVariablesAndNotWhatTheyHold(t *testing.T) {
	t.Setenv("WEIR_TEST_HELD", "hunter2hunter2")
	at := ownConfig(t, small)
	for _, text := range []string{
		"store: \"${WEIR_TEST_HELD}\"\n" + small,
		"defaults: {new_keys: \"${WEIR_TEST_HELD}\"}\n" + small,
		"client_ip: {trusted_proxies: [\"${WEIR_TEST_HELD}\"]}\n" + small,
		"routes: [{match: {path: /a}, upstream: \"${WEIR_TEST_HELD}\"}]\n",
		"listen: {max_header: \"${WEIR_TEST_HELD}\"}\n" + small,
	} {
		_, err := Unpack(at, Bundle{Main: "weir.yaml", Files: map[string]string{"weir.yaml": text}})
		if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "${WEIR_TEST_HELD}") {
			t.Errorf("%s: %v; want the name of the variable alone", text, err)
		}
	}
}

const small = "routes:\n  - {match: {path: /a}, upstream: echo}\n"

func unpacked(t *testing.T, at *config.Config, b Bundle) *config.Config {
	t.Helper()
	c, err := Unpack(at, b)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustLoad(t *testing.T, path string) *config.Config {
	t.Helper()
	c, err := config.Load(path)
	if err != nil {
		t.Fatalf("%s has problems:\n%v", path, err)
	}
	return c
}
