package config

import (
	"bytes"
	"fmt"
	"reflect"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"

	"github.com/weir-proxy/weir/test/filetest"
)

// TestSchema_AgreesWithLoad: what Load takes is valid for an editor too.
func TestSchema_AgreesWithLoad(t *testing.T) {
	s := compileSchema(t)
	for _, path := range append(mustGlob(t, "testdata/good-*.yaml"), example) {
		if err := s.Validate(instance(t, path)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		effective := mustLoad(t, path).Effective()
		var v any
		if err := yaml.Unmarshal(bytes.ReplaceAll(effective, []byte("$$"), []byte("$")), &v); err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(textNames(v)); err != nil {
			t.Errorf("%s made effective: %v", path, err)
		}
	}
}

// TestSchema_RefusesWhatAnEditorCanSee: fields, kinds, and the values of lists
// of choices.
func TestSchema_RefusesWhatAnEditorCanSee(t *testing.T) {
	s := compileSchema(t)
	for _, fault := range []string{
		"unknown-field", "wrong-type", "enum", "number-range", "not-built", "route-incomplete", "version",
		"methods", "reject", "normalize", "on-missing", "no-value", "routes-mapping", "document-list",
	} {
		if err := s.Validate(instance(t, "testdata/bad-"+fault+".yaml")); err == nil {
			t.Errorf("bad-%s.yaml is valid under the schema", fault)
		}
	}
}

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("weir.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("weir.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// instance is the file at path as an editor reads it.
func instance(t *testing.T, path string) any {
	t.Helper()
	data := filetest.Read(t, path)
	var v any
	if err := yaml.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return textNames(v)
}

// textNames makes names of whatever a mapping has for them, as JSON does.
func textNames(v any) any {
	switch v := v.(type) {
	case map[any]any:
		made := map[string]any{}
		for name, value := range v {
			made[fmt.Sprint(name)] = textNames(value)
		}
		return made
	case map[string]any:
		for name, value := range v {
			v[name] = textNames(value)
		}
	case []any:
		for i, value := range v {
			v[i] = textNames(value)
		}
	}
	return v
}

// collect finds all forms within a form.
func collect(forms map[string]reflect.Type, of reflect.Type) {
	forms[of.Name()] = of
	for i := range of.NumField() {
		if sub := formOf(of.Field(i)); sub != nil {
			collect(forms, sub)
		}
	}
}
