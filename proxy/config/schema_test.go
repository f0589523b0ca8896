package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode"

	"github.com/invopop/jsonschema"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

var update = flag.Bool("update", false, "write schema.json and the golden files anew")

// TestSchema_HasNotDrifted fails when a form was changed and go generate was
// not run.
func TestSchema_HasNotDrifted(t *testing.T) {
	want := generate(t)
	if *update {
		if err := os.WriteFile("schema.json", want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !bytes.Equal(Schema(), want) {
		t.Error("schema.json is not what the forms say; run go generate ./proxy/config")
	}
}

func TestSchema_IsACopy(t *testing.T) {
	Schema()[0] = 'x'
	if Schema()[0] != '{' {
		t.Error("a caller can change the schema")
	}
}

// generate makes the JSON Schema of the forms.
func generate(t *testing.T) []byte {
	t.Helper()
	comments := formComments(t)
	types := map[string]reflect.Type{}
	r := &jsonschema.Reflector{
		FieldNameTag:               "yaml",
		RequiredFromJSONSchemaTags: true,
		Anonymous:                  true,
		Namer:                      definition,
		LookupComment: func(rt reflect.Type, field string) string {
			types[definition(rt)] = rt
			return comments[rt.Name()+"."+field]
		},
		Mapper: func(rt reflect.Type) *jsonschema.Schema {
			switch rt {
			case reflect.TypeFor[duration](), reflect.TypeFor[durations]():
				return &jsonschema.Schema{Type: "string", Pattern: `^([0-9]+(ms|s|m|h|d|w))+$`}
			case reflect.TypeFor[size]():
				return &jsonschema.Schema{Type: "string", Pattern: `^[0-9]+(B|KiB|MiB|GiB)$`}
			case reflect.TypeFor[Statuses](), reflect.TypeFor[code]():
				return &jsonschema.Schema{Type: "string", Pattern: codeForm.String()} // of one entry; see loosen
			case reflect.TypeFor[reservedPart](): // written without quotes, or not
				return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "integer", Minimum: "1", Maximum: "2147483647"}, {Type: "string"}}}
			case reflect.TypeFor[weight]():
				return &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Type: "number", Minimum: "0", Maximum: "1000000"}, {Type: "string", Pattern: `^[0-9.]+$|\$\{[A-Za-z_]`}}}
			case reflect.TypeFor[Threshold]():
				return &jsonschema.Schema{Default: 100, AnyOf: []*jsonschema.Schema{{Type: "integer", Minimum: "1", Maximum: "999999999"}, {Type: "string", Pattern: thresholdForm.String()}, {Type: "string", Pattern: `\$\{[A-Za-z_]`}}}
			}
			if isList(rt) {
				return &jsonschema.Schema{Type: "string"} // of one entry; see loosen
			}
			return nil
		},
	}
	root := r.Reflect(&Config{})
	root.Title = "Weir"
	for name, def := range root.Definitions {
		loosen(def, types[name])
	}
	b, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return append(b, '\n')
}

// definition is what a form is called in the schema: an exported one has the name that it had as a form of its own.
func definition(of reflect.Type) string {
	switch name := of.Name(); {
	case name == "Config":
		return "file"
	case name == "ListenTimeouts":
		return "timeoutBoundsForm"
	case name == "ErrorText":
		return "errorForm"
	case of.Kind() != reflect.Struct || !ast.IsExported(name):
		return name
	default:
		first := len(name) - len(strings.TrimLeftFunc(name, unicode.IsUpper))
		if first > 1 && first < len(name) {
			first--
		}
		return strings.ToLower(name[:first]) + name[first:] + "Form"
	}
}

// loosen lets def, of a form, be what the loader takes besides: a list of one
// without brackets, a variable in place of a value, a short form.
func loosen(def *jsonschema.Schema, of reflect.Type) {
	for i := range of.NumField() {
		field := of.Field(i)
		if name := form.FieldName(field); name != "" {
			p, _ := def.Properties.Get(name)
			def.Properties.Set(name, loose(p, field.Type))
		}
	}
	index, ok := form.ShortOf(of)
	if !ok {
		return
	}
	field := of.Field(index)
	short := &jsonschema.Schema{Type: "string"}
	for _, v := range form.TagOf(field).Enum {
		short.Enum = append(short.Enum, v)
	}
	full := *def
	full.Description = ""
	*def = jsonschema.Schema{
		Description: def.Description,
		AnyOf:       []*jsonschema.Schema{loose(short, field.Type), &full},
	}
}

// loose is p, which a value of type t is decoded from, or something as good.
func loose(p *jsonschema.Schema, t reflect.Type) *jsonschema.Schema {
	if t.Kind() == reflect.Map && p.AdditionalProperties != nil && t.Elem() == reflect.TypeFor[*list]() {
		p.AdditionalProperties = loose(p.AdditionalProperties, t.Elem().Elem())
	}
	outer := &jsonschema.Schema{Description: p.Description, Default: p.Default}
	p.Description, p.Default = "", nil
	one := []*jsonschema.Schema{p}
	if p.Type == "integer" || p.Type == "boolean" || p.Enum != nil || p.Pattern != "" {
		one = append(one, &jsonschema.Schema{Type: "string", Pattern: `\$\{[A-Za-z_]`})
	}
	if t == reflect.TypeFor[Statuses]() {
		one = append(one, &jsonschema.Schema{Type: "integer", Minimum: "100", Maximum: "599"})
	}
	if isList(t) || t == reflect.TypeFor[durations]() || t == reflect.TypeFor[Statuses]() {
		items := &jsonschema.Schema{AnyOf: one}
		if len(one) == 1 {
			items = p
		}
		one = append(one, &jsonschema.Schema{Type: "array", Items: items})
	}
	if t == reflect.TypeFor[[]reservedPart]() {
		one = append(one, p.Items)
	}
	if t.Kind() == reflect.Slice {
		if _, ok := form.ShortOf(t.Elem()); ok {
			one = append(one, &jsonschema.Schema{Type: "string"})
		}
	}
	if len(one) > 1 {
		outer.AnyOf = one
		return outer
	}
	p.Description, p.Default = outer.Description, outer.Default
	return p
}

// isList reports whether values of t are texts, of which one may stand without brackets.
func isList(t reflect.Type) bool {
	return t.Kind() == reflect.Slice && (t.Elem().Kind() == reflect.String || t.Elem() == reflect.TypeFor[netip.Prefix]())
}

// formComments reads the comments of the forms: of FORM. and FORM.Field.
func formComments(t *testing.T) map[string]string {
	t.Helper()
	var decls []ast.Decl
	for _, name := range mustGlob(t, "*.go") {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		decls = append(decls, f.Decls...)
	}
	comments := map[string]string{}
	for _, decl := range decls {
		d, ok := decl.(*ast.GenDecl)
		if !ok || d.Tok != token.TYPE {
			continue
		}
		spec := d.Specs[0].(*ast.TypeSpec)
		of, ok := spec.Type.(*ast.StructType)
		if !ok {
			continue
		}
		comments[spec.Name.Name+"."] = sentence(d.Doc, spec.Name.Name)
		for _, field := range of.Fields.List {
			if len(field.Names) == 0 {
				continue // embedded, in no form
			}
			comments[spec.Name.Name+"."+field.Names[0].Name] = sentence(field.Doc, "")
		}
	}
	return comments
}

// sentence is a comment on one line, without the name of a form before it.
func sentence(c *ast.CommentGroup, name string) string {
	text := strings.Join(strings.Fields(c.Text()), " ")
	if rest, ok := strings.CutPrefix(text, name+" "); ok && name != "" {
		return "This " + rest
	}
	return text
}
