package admin

import (
	"cmp"
	"encoding"
	"fmt"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/proxy/view"
)

// An object is a JSON object.
type object = map[string]any

// inPath matches the parameters of a path.
var inPath = regexp.MustCompile(`\{([a-z_]+)\}`)

// openAPI returns the OpenAPI 3.0.3 document of the endpoints. Its schemas are generated from the
// request and response types.
func openAPI(endpoints []endpoint) object {
	s := schemas{}
	refused := object{
		"description": "The reason of the error.",
		"content":     object{"application/problem+json": object{"schema": s.of(reflect.TypeFor[Problem]())}},
	}
	paths := map[string]object{}
	for _, e := range endpoints {
		if paths[e.path] == nil {
			paths[e.path] = object{}
		}
		paths[e.path][strings.ToLower(e.method)] = e.operation(s)
	}
	return object{
		"openapi": "3.0.3",
		"info": object{
			"title": "Weir, the operators' side", "version": "1",
			"description": "Every node answers for all nodes that share its Redis, unless stated otherwise. A token with the role read may read; the role write may also make changes.",
			"license":     object{"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
		},
		"servers":  []any{object{"url": apiRoot}},
		"security": []any{object{"token": []any{}}, object{}}, // without configured tokens none is required
		"paths":    paths,
		"components": object{
			"schemas": s, "responses": object{"Problem": refused},
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}},
		},
	}
}

// operation returns the description of e.
func (e endpoint) operation(s schemas) object {
	kind := "application/json"
	schema := s.of(e.response)
	if e.stream {
		kind, schema = "text/event-stream", object{"type": "string", "description": "Events, each with an Event as its data."}
	}
	op := object{
		"operationId": e.id(), "summary": e.summary, "x-role": e.role, "tags": []any{e.tag()},
		"responses": object{
			strconv.Itoa(http.StatusOK): object{"description": "Success.", "content": object{kind: object{"schema": schema}}},
			"default":                   object{"$ref": "#/components/responses/Problem"},
		},
	}
	if e.request != nil {
		kind := "application/json"
		if e.form {
			kind = "multipart/form-data"
		}
		op["requestBody"] = object{"required": true, "content": object{kind: object{"schema": s.of(e.request)}}}
	}
	parameters := slices.Concat(view.Each(inPath.FindAllStringSubmatch(e.path, -1), func(found []string) object {
		return object{"name": found[1], "in": "path", "required": true, "schema": object{"type": "integer", "format": "int64"}}
	}), view.Each(e.parameters, func(p parameter) object {
		return object{"name": p.name, "in": cmp.Or(p.in, "query"), "description": p.summary, "schema": p.schema(s)}
	}))
	if len(parameters) > 0 {
		op["parameters"] = parameters
	}
	return op
}

// id returns the operation id of e, for generated clients: getHistoryGeneration.
func (e endpoint) id() string {
	id := strings.ToLower(e.method)
	for _, word := range strings.FieldsFunc(e.path, func(c rune) bool { return strings.ContainsRune("/{}_", c) }) {
		id += strings.ToUpper(word[:1]) + word[1:]
	}
	return id
}

// tag returns the tag of e: the first word of its path.
func (e endpoint) tag() string {
	tag, _, _ := strings.Cut(strings.TrimPrefix(e.path, "/"), "/")
	return tag
}

func (p parameter) schema(s schemas) object {
	schema := s.of(reflect.TypeOf(p.to).Elem())
	if p.max > 0 {
		schema = object{"type": "integer", "minimum": 1, "maximum": p.max}
	}
	if p.enum != nil {
		schema["enum"] = p.enum
	}
	return schema
}

// schemas are the schemas of structs by type name.
type schemas object

// of returns the schema of the JSON encoding of a value of type t.
func (s schemas) of(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[File]():
		return object{"type": "string", "format": "binary"}
	case t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return object{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return s.of(t.Elem())
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer", "format": "int64"}
	case reflect.Float64:
		return object{"type": "number", "format": "double"}
	case reflect.Slice:
		return object{"type": "array", "items": s.of(t.Elem()), "nullable": true} // a nil slice is encoded as null
	case reflect.Map:
		return object{"type": "object", "additionalProperties": s.of(t.Elem()), "nullable": true}
	case reflect.Struct:
		return s.named(t)
	}
	panic(fmt.Sprintf("no schema for %v", t)) // a programming error in a type of the API
}

// named returns a reference to the schema of a struct, which is created on first use.
func (s schemas) named(t reflect.Type) object {
	ref := object{"$ref": "#/components/schemas/" + t.Name()}
	if _, made := s[t.Name()]; made {
		return ref
	}
	properties, required := object{}, []string{}
	s[t.Name()] = properties // set first, for recursive types
	s.fields(t, properties, &required)
	made := object{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		made["required"] = required
	}
	s[t.Name()] = made
	return ref
}

// fields adds the JSON fields of t, including those of embedded structs.
func (s schemas) fields(t reflect.Type, properties object, required *[]string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || f.Tag.Get("api") == "-" || !f.IsExported():
		case f.Anonymous && name == "":
			s.fields(f.Type, properties, required)
		default:
			properties[name] = s.of(f.Type)
			if options == "" {
				*required = append(*required, name)
			}
		}
	}
}
