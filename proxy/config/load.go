// Package config loads the YAML configuration into validated values: users of a *Config
// need not check it again. It has its defaults filled in, is immutable once loaded, and is safe
// for concurrent use.
//
// [Load] returns a complete [Config], or all problems of the files at once, each with file,
// line and column and what to write instead. Loading has no side effects other than reading
// files: it opens no connections and changes nothing.
package config

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"hash"
	"maps"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/view"
)

// Load reads the file at path and the files that it includes, and replaces environment
// variables. It returns a complete Config, or Problems. A file that cannot be read is a
// problem too.
func Load(path string) (*Config, error) {
	r := newLoader(os.LookupEnv)
	return r.whole(path, r.open(path, ""))
}

// whole compiles the file called name with all that it includes; main is nil if it cannot be read.
func (l *loader) whole(name string, main *Config) (*Config, error) {
	if main == nil || !l.include(name, main) || l.Exhausted() { // what else is missing may be in a file that could not be read
		return nil, l.failed()
	}
	return l.compile(main)
}

// LoadText is like Load for a configuration that is in no file, called name in problems.
func LoadText(name string, data []byte) (*Config, error) {
	r := newLoader(os.LookupEnv)
	return r.whole(name, r.read(name, "", data))
}

// A loader is the state of loading one Config.
type loader struct {
	*form.Reader
	source  FileSource
	home    string // directory of files of this machine; empty: that of the main file
	hash    hash.Hash
	common  hash.Hash // like hash, without parts specific to the machine
	main    *Config   // what is compiled, with all that it includes
	made    *Config   // what is known of it so far
	decoded int       // number of problems of decoding

	keys  *keys
	lists map[string]*List // nil for one with a problem
	used  map[any]bool     // forms whose names others refer to
}

func newLoader(env form.Env) *loader {
	return &loader{
		Reader: form.NewReader(env, hint), source: diskFiles{}, hash: sha256.New(), common: sha256.New(),
		made:  &Config{own: map[string]bool{}, lined: map[string]int{}, Keys: map[string]*key.Spec{}, Upstreams: map[string]*Upstream{}},
		lists: map[string]*List{}, used: map[any]bool{},
	}
}

// Paths of fields whose texts have a syntax of their own.
var (
	rateField     = regexp.MustCompile(`\.(rate|rates(\[\d+\])?|new_keys|(overrides|plans)\..+)$`)
	keyField      = regexp.MustCompile(`(^|\.)(key|from|of|use|distinct|join|must_equal|token|plan|cost|keys\.[^.]+)(\[\d+\])?$`)
	addressField  = regexp.MustCompile(`^(listen\.(decide\.)?|admin\.|redis\.)(https?|grpc|addrs)(\[\d+\])?$`)
	upstreamField = regexp.MustCompile(`(\.upstream|^upstreams\.[^.]+|\.targets\[\d+\]|\.url)$`)
)

// hint says what to write at path instead of text, a number or NAME: VALUE.
func hint(path, text string) (kind, instead string) {
	switch {
	case rateField.MatchString(path):
		if strings.Contains(text, ": ") {
			return "a rate", "write COUNT/WINDOW, for example 5/1m"
		}
		rate := text + "/1m"
		if _, err := limiter.ParseRate(rate); err != nil {
			rate = "5/1m"
		}
		return "a rate", "say within which time, for example " + rate
	case keyField.MatchString(path):
		origin, err := key.ParseOrigin(strings.Replace(text, ": ", ":", 1))
		if err == nil && origin.Source.IsNamed() {
			return "a key", "write it as one text without a space: " + strconv.Quote(origin.String())
		}
	case addressField.MatchString(path) && form.IsPort(text):
		host, _ := exampleAddress(path)
		return "an address", "write " + strconv.Quote(net.JoinHostPort(host, text))
	case upstreamField.MatchString(path) && form.IsPort(text):
		return "a URL", "write http://127.0.0.1:" + text
	}
	return "", ""
}

// exampleAddress returns an address that is usual at path.
func exampleAddress(path string) (host, port string) {
	switch {
	case strings.HasPrefix(path, "redis."):
		return "127.0.0.1", "6379"
	case strings.HasPrefix(path, "admin."):
		return "127.0.0.1", "9901"
	case strings.HasPrefix(path, "listen.decide."):
		return "127.0.0.1", "8081"
	case path == "listen.https":
		return "", "8443"
	}
	return "", "8080"
}

// failed returns all problems, in order: first those of decoding, from which others may follow.
func (l *loader) failed() Problems {
	all := l.Problems()
	return append(form.Arrange(all[:l.decoded], l.made.Files), form.Arrange(all[l.decoded:], l.made.Files)...)
}

// remark notes something about the value at pointer that does no harm, and may be meant.
func (l *loader) remark(pointer any, what, instead string) {
	p := l.Location(pointer)
	l.made.Remarks = append(l.made.Remarks, Problem{Position: p.Position, Path: p.Path, What: what, Instead: instead})
}

// open reads the file at path; id identifies its content in the hash. It returns nil if the
// file could not be decoded.
func (l *loader) open(path, id string) *Config {
	data, err := l.source.Read(path, form.MaxSize)
	if err != nil {
		l.made.Files = append(l.made.Files, path)
		l.Add(form.Location{Position: Position{File: path}}, "cannot be read: "+err.Error(), "name a file that Weir may read")
		return nil
	}
	return l.read(path, id, data)
}

// read decodes the content of one file. It returns nil if the content is empty or too
// large.
func (l *loader) read(name, id string, data []byte) *Config {
	l.made.Files = append(l.made.Files, name)
	root := l.Parse(name, data)
	if root == nil {
		return nil
	}
	form.AddParts(l.hash, []byte(id), data)
	form.AddParts(l.common, []byte(id), shared(root, data))
	main := &Config{}
	if !l.Decode(name, root, main) {
		return nil
	}
	return main
}

// shared returns the text of a file without the sections listen and admin, which are
// specific to a machine: configurations that differ only there are equal. Sections are
// whole lines, unless the file is in flow style; then all of it counts.
func shared(root *yaml.Node, data []byte) []byte {
	if root.Kind != yaml.MappingNode || root.Style&yaml.FlowStyle != 0 || !utf8.Valid(data) { // which UTF-16 is not
		return data
	}
	lines := form.Lines(string(data))
	end := len(lines) // of the section
	for i := len(root.Content) - 2; i >= 0; i -= 2 {
		begin := root.Content[i].Line - 1
		if name := root.Content[i].Value; name == "listen" || name == "admin" {
			lines = slices.Delete(lines, begin, end)
		}
		end = begin
	}
	return []byte(strings.Join(lines, ""))
}

//go:generate go test -run TestSchema_HasNotDrifted -update .

//go:embed schema.json
var schema []byte

// Schema is the JSON Schema of a config file, for editors. It is a copy. What
// Load accepts is valid under it; what is valid may still be refused.
func Schema() []byte { return bytes.Clone(schema) }

// errorStatus matches a status or a class of statuses.
var errorStatus = regexp.MustCompile(`^[45]([0-9]{2}|xx)$`)

// ownStatuses are the statuses with which Weir answers by itself, and their classes.
const ownStatuses = "4xx, 400, 401, 403, 404, 405, 408, 413, 414, 417, 431, 5xx, 500, 501, 502, 503, 504, 505, 508"

// errors compiles the texts of errors by their status, which come before the common ones; nil if there are none. A status
// overrides its class, which is sorted behind it.
func (l *loader) errors(common map[int]Reject, forms map[string]*ErrorText) map[int]Reject {
	if len(forms) == 0 {
		return nil
	}
	made := map[int]Reject{}
	maps.Copy(made, common)
	for _, name := range slices.Backward(form.SortedKeys(forms)) {
		f, of := forms[name], code{}
		switch {
		case !errorStatus.MatchString(name), of.Parse(name) != nil:
			l.WrongName(f, form.Quote(name)+" is not the status of an error", "write for example 404, 4xx or 5xx")
			continue
		case name == "429":
			l.WrongName(f, "429 is the answer of limits", "write reject: in the route")
			continue
		case !slices.Contains(strings.Split(ownStatuses, ", "), name):
			l.Warn(f, "has no effect: Weir answers no request with "+name, "write one of "+ownStatuses+", or leave it out")
		}
		r := l.texts(f, "{retry_after}", "{request_id}", "{status}")
		for status := of.from; status <= of.to; status++ {
			r.Status = status
			made[status] = r
		}
	}
	delete(made, 429)
	return made
}

// A Value is a value of a list or the key of an override, with its position or the file that contains it.
type Value struct {
	Spec     *key.Spec
	Position // empty if File is given
	Text     string
	Written  string // empty unless it names variables
	File     string // the file of values
	Prefix   bool   // prefixes of values
	of       any    // pointer to the values of a list, or to overrides, in the form
}

// OtherUses returns the environment variables and fields in which c names them and none of known does.
func (c *Config) OtherUses(known ...*Config) []string {
	uses := maps.Clone(c.uses)
	for _, k := range known {
		maps.DeleteFunc(uses, func(use string, _ int) bool {
			return k.uses[use]+k.uses[strings.TrimSuffix(use, ".targets.url")] > 0 // the short form, which is shown as the long one
		})
	}
	return form.SortedKeys(uses)
}

// Fetches returns from where the keys of tokens are fetched: a URL, or "", for each of Tokens.
func (c *Config) Fetches() []string { return view.Each(c.Tokens, (*key.Tokens).Fetches) }

// Values returns the values of all lists and the keys of all overrides.
func (c *Config) Values() []Value { return c.values }

// IsConcealed reports whether v is not shown where others may read it. A prefix is: it stands for a range of keys.
func (v *Value) IsConcealed() bool { return v.Spec.IsConcealed() && !v.Prefix }

// IsVariable reports whether v names an environment variable, whose value is not in the configuration's files.
func (v *Value) IsVariable() bool { return strings.Contains(v.Written, "${") }

// Where returns the name of the file that contains v.
func (v *Value) Where() string { return cmp.Or(v.File, v.Position.File) }

// concealed returns pointers to the lists and overrides in the form of c whose values are those of sensitive keys.
func (c *Config) concealed() map[any]bool {
	all := map[any]bool{}
	for _, v := range c.values {
		if v.IsConcealed() {
			all[v.of] = true
		}
	}
	return all
}

// include adds the keys, lists, limits, upstreams and routes of the files that main includes. It reports whether all could
// be read.
func (l *loader) include(path string, main *Config) (whole bool) {
	whole = true
	read := map[string]bool{filepath.Clean(path): true}
	dir := filepath.Dir(path)
	for i := range main.Include {
		if main.Include[i] == "" {
			continue // already reported
		}
		pattern := form.Within(dir, main.Include[i])
		l.made.Globs = append(l.made.Globs, pattern)
		matches, err := l.source.Glob(pattern)
		if l.refuseFirst([]finding{
			{err != nil, &main.Include[i], "not a pattern", `write for example "conf.d/*.yaml"`},
			{len(matches) == 0 && !strings.ContainsAny(pattern, "*?["), &main.Include[i], "there is no such file", "name a file that exists, or a pattern with *"},
		}) {
			whole = false
		}
		for _, match := range matches {
			if read[match] {
				continue
			}
			read[match] = true
			id, _ := filepath.Rel(dir, match) // empty if there is no such path
			part := l.open(match, cmp.Or(id, match))
			if part == nil {
				whole = false
				continue
			}
			l.merge(main, part)
		}
	}
	return whole
}

// merge adds what an included file has to main.
func (l *loader) merge(main, part *Config) {
	mergeable := []string{"keys", "lists", "limits", "upstreams", "routes"}
	for _, name := range form.FieldNames(reflect.TypeOf(*part)) {
		pointer := form.Field(part, name)
		if !slices.Contains(mergeable, name) && l.Given(pointer) {
			l.WrongName(pointer, "has no place in an included file", "move it to "+l.made.Files[0])
		}
	}
	add(l, &main.KeyForms, part.KeyForms)
	add(l, &main.ListForms, part.ListForms)
	add(l, &main.LimitForms, part.LimitForms)
	add(l, &main.Upstreams, part.Upstreams)
	main.Routes = append(main.Routes, part.Routes...)
}

// add adds the entries of part to all; a name may stand in one file only.
func add[T any](r *loader, all *map[string]*T, part map[string]*T) {
	if *all == nil {
		*all = map[string]*T{}
	}
	for name, v := range part {
		if first, ok := (*all)[name]; ok {
			r.WrongName(v, fmt.Sprintf("%q is given twice, first at %s", name, r.Location(first).Position), "give one of them another name")
			continue
		}
		(*all)[name] = v
	}
}
