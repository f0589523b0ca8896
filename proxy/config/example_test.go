package config

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
)

const example = "../../config.example.yaml"

// TestExample_ShowsEveryField walks the forms beside the example: each field
// stands in it, and one that has a default is shown with it.
func TestExample_ShowsEveryField(t *testing.T) {
	data, err := form.ReadFile(example, form.MaxSize)
	if err != nil {
		t.Fatal(err)
	}
	r := newLoader(environment)
	root := r.Parse(example, data)
	if root == nil {
		t.Fatal(r.failed())
	}
	s := exampleForms{}
	s.find(reflect.TypeFor[Config](), []*yaml.Node{root})
	for of, nodes := range s {
		check(t, of, nodes)
	}
}

// An exampleForms has the mappings of the example that are a form.
type exampleForms map[reflect.Type][]*yaml.Node

// find adds nodes, which are all of a form, and what is below them.
func (e exampleForms) find(of reflect.Type, nodes []*yaml.Node) {
	e[of] = append(e[of], nodes...)
	for i := range of.NumField() {
		field := of.Field(i)
		found := fieldNodes(form.FieldName(field), nodes)
		if sub := formOf(field); sub != nil && (len(found) > 0 || e[sub] == nil) {
			e.find(sub, under(field.Type, found))
		}
	}
}

// fieldNodes returns the values of a field in the nodes of a form.
func fieldNodes(name string, nodes []*yaml.Node) (found []*yaml.Node) {
	for _, n := range nodes {
		if n.Kind != yaml.MappingNode {
			continue // a short form
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == name {
				found = append(found, n.Content[i+1])
			}
		}
	}
	return found
}

// check checks the fields of a form against all the mappings that are one.
func check(t *testing.T, of reflect.Type, nodes []*yaml.Node) {
	t.Helper()
	for i := range of.NumField() {
		field := of.Field(i)
		name := form.FieldName(field)
		if name == "" {
			continue
		}
		found := fieldNodes(name, nodes)
		at := of.Name() + "." + name
		if len(found) == 0 {
			t.Errorf("%s does not stand in the example", at)
			continue
		}
		for _, n := range found {
			if want := form.TagOf(field).Default; want != nil && !is(n, *want) && !showsOtherValue(t, n.Line) {
				t.Errorf("%s on line %d is %q, which is not its default %q, and the line does not say so", at, n.Line, n.Value, *want)
			}
		}
		if want := form.TagOf(field).Default; want != nil && !slices.ContainsFunc(found, func(n *yaml.Node) bool { return is(n, *want) }) {
			t.Errorf("%s is nowhere shown with its default %q", at, *want)
		}
	}
}

// notDefault is what the comment says of a line that shows another value than the
// default.
const notDefault = "(not the default)"

// showsOtherValue reports whether a line of the example says that it shows another value than
// the default.
func showsOtherValue(t *testing.T, line int) bool {
	t.Helper()
	data, err := form.ReadFile(example, form.MaxSize)
	if err != nil {
		t.Fatal(err)
	}
	_, comment, _ := strings.Cut(strings.Split(string(data), "\n")[line-1], " #")
	return strings.Contains(comment, notDefault)
}

// variable matches an environment variable with a default.
var variable = regexp.MustCompile(`\$\{[A-Z_]+:-([^}]*)\}`)

// is reports whether n, or its only entry, is the text want.
func is(n *yaml.Node, want string) bool {
	if n.Kind == yaml.SequenceNode && len(n.Content) == 1 {
		n = n.Content[0]
	}
	return n.Kind == yaml.ScalarNode && variable.ReplaceAllString(n.Value, "$1") == want
}

// formOf is the form within t, nil if there is none.
func formOf(field reflect.StructField) reflect.Type {
	t := field.Type
	if form.FieldName(field) == "" {
		return nil // it does not stand in a file
	}
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct {
		return t
	}
	return nil
}

// under is nodes, or what they hold if t holds several.
func under(t reflect.Type, nodes []*yaml.Node) []*yaml.Node {
	if t.Kind() != reflect.Slice && t.Kind() != reflect.Map {
		return nodes
	}
	var all []*yaml.Node
	for _, n := range nodes {
		for i, c := range n.Content {
			if n.Kind == yaml.SequenceNode || i%2 == 1 {
				all = append(all, c)
			}
		}
	}
	return all
}

// TestExample_ServesAlone says what a newcomer meets: no Redis, no upstream,
// and one code a minute for each phone number in whatever spelling.
func TestExample_ServesAlone(t *testing.T) {
	c := mustLoad(t, example)
	if c.Store != StoreMemory || c.Listen.HTTP != ":8080" || c.Admin.HTTP != "127.0.0.1:9901" || c.Admin.Token != "" {
		t.Errorf("got %v %v %v", c.Store, c.Listen, c.Admin)
	}
	if len(c.Warnings) > 0 {
		t.Errorf("got warnings %v", c.Warnings)
	}
	for _, r := range c.Routes {
		if r.Upstream != nil && !r.Upstream.Echo {
			t.Errorf("route %s needs a server", r.Name)
		}
	}
	send := c.Routes[0]
	if send.Match.Path != "/v1/sms/send" || !slices.Equal(send.Match.Methods, []string{"POST"}) {
		t.Errorf("got %+v", send.Match)
	}
	phone := send.Limits[0]
	wantKey := &key.Spec{
		Name:      "phone",
		From:      key.Origin{Source: key.Header, Name: "X-Phone"},
		Normalize: []key.Step{key.E164},
		Phone:     phone.Key.Phone,
		OnMissing: key.Reject,
	}
	if n, err := wantKey.Phone.Parse("+86 138 0013 8000"); err != nil || n.E164 != "+8613800138000" {
		t.Errorf("a number is %v, %v", n, err)
	}
	if !reflect.DeepEqual(phone.Key, wantKey) {
		t.Errorf("key: got %+v, want %+v", phone.Key, wantKey)
	}
	if want := []limiter.Rate{{Count: 1, Window: time.Minute}}; !slices.Equal(phone.Rates, want) || phone.Mode != Enforce {
		t.Errorf("got %v %v, want %v enforced", phone.Rates, phone.Mode, want)
	}
	for _, l := range send.Limits[1:] {
		for _, r := range l.Rates {
			if r.Count < 10 {
				t.Errorf("limit %s of %v disturbs a newcomer", l.Name, r)
			}
		}
	}
}
