package convert

import (
	"bytes"
	"cmp"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// A directive of nginx is a simple one, NAME ARGS;, or a block, NAME ARGS { DIRECTIVES }.
type directive struct {
	name  string
	args  []string
	block []*directive
	line  int
	// used is set by what translates the directive or writes a note about it. A directive
	// without this mark is listed at the end.
	used bool
}

// use marks directives.
func use(all ...*directive) {
	for _, d := range all {
		d.used = true
	}
}

// useAll marks a directive and everything in it.
func (d *directive) useAll() {
	use(d)
	for _, inner := range d.block {
		inner.useAll()
	}
}

// find returns the directives of block with one of these names.
func find(block []*directive, names ...string) []*directive {
	var found []*directive
	for _, d := range block {
		if slices.Contains(names, d.name) {
			found = append(found, d)
		}
	}
	return found
}

// findDeep returns the directives with one of these names in block and in all blocks in it.
func findDeep(block []*directive, name string) []*directive {
	found := find(block, name)
	for _, d := range block {
		found = append(found, findDeep(d.block, name)...)
	}
	return found
}

// arg returns the argument at i; "" if there is none.
func (d *directive) arg(i int) string {
	if i < 0 || i >= len(d.args) {
		return ""
	}
	return d.args[i]
}

// String returns the directive as it is written, without its block.
func (d *directive) String() string { return strings.Join(append([]string{d.name}, d.args...), " ") }

// expectedNginx is what the file should be.
const expectedNginx = "expected an nginx configuration, NAME ARGUMENTS; or NAME { ... }, for example the output of " +
	"nginx -T"

// An nginxParser reads directives. Its grammar is all that nginx has: words, some in quotes,
// that end at a semicolon or a brace, and comments.
type nginxParser struct {
	*document
	data  []byte
	line  int
	depth int
	// files are the parts of the output of nginx -T, by name.
	files    map[string][]*directive
	first    string          // of files
	included map[string]bool // by name
	count    int             // of directives, with those of included files
}

// parseNginx parses a file, or the output of nginx -T, where included files stand one after
// another and are put where they are included.
func parseNginx(d *document, data []byte) ([]*directive, error) {
	p := &nginxParser{document: d, data: data, line: 1, files: map[string][]*directive{}, included: map[string]bool{}}
	var name string
	for {
		block, next, err := p.readBlock(nil)
		if err != nil {
			return nil, err
		}
		p.files[name] = append(p.files[name], block...)
		if next == "" {
			break
		}
		name = next
		p.first = cmp.Or(p.first, name)
	}
	root := p.files[""]
	if p.first != "" {
		root = slices.Concat(root, p.files[p.first])
	}
	root = p.include(root, 0)
	for _, name := range slices.Sorted(maps.Keys(p.files)) {
		if name != "" && name != p.first && !p.included[name] {
			root = append(root, p.files[name]...) // to be listed
		}
	}
	return root, nil
}

// include puts the directives of included files where they are included. An include of a file
// that is not here stays.
func (p *nginxParser) include(block []*directive, depth int) []*directive {
	var made []*directive
	for _, d := range block {
		if p.count++; d.name != "include" || depth > maxDepth || p.count > maxDirectives {
			copied := *d // a file that is included twice has its own marks in each place
			copied.block = p.include(d.block, depth)
			made = append(made, &copied)
			continue
		}
		pattern := d.arg(0)
		if !path.IsAbs(pattern) {
			pattern = path.Join(path.Dir(p.first), pattern)
		}
		found := false
		for _, name := range slices.Sorted(maps.Keys(p.files)) {
			if ok, _ := path.Match(pattern, name); ok {
				made, found, p.included[name] = append(made, p.include(p.files[name], depth+1)...), true, true
			}
		}
		if !found {
			made = append(made, d)
		}
	}
	return made
}

// maxDepth bounds blocks in blocks, and files that include files. maxDirectives bounds what
// files that include others many times come to.
const (
	maxDepth      = 64
	maxDirectives = 200_000
)

// readBlock reads directives up to the end of the block of d; with nil for d, up to the end of the file, or up to where
// nginx -T begins the file next.
func (p *nginxParser) readBlock(of *directive) (block []*directive, next string, err error) {
	for {
		next, err := p.space()
		isEnd := len(p.data) == 0 || next != ""
		switch {
		case err != nil || isEnd && of == nil:
			return block, next, err
		case isEnd:
			return nil, "", p.wrong(of.line, "the block "+of.name+" that begins here does not end",
				"write } at its end")
		case p.data[0] == '}' && of == nil:
			return nil, "", p.wrong(p.line, "} ends no block", expectedNginx)
		case p.data[0] == '}':
			p.data = p.data[1:]
			return block, "", nil
		}
		d, err := p.directive()
		if err != nil {
			return nil, "", err
		}
		block = append(block, d)
	}
}

// directive reads one directive.
func (p *nginxParser) directive() (*directive, error) {
	d := &directive{line: p.line}
	var words []string
	for {
		next, err := p.space()
		if err != nil {
			return d, err
		}
		if len(p.data) == 0 || next != "" {
			return d, p.wrong(d.line, "the file ends within "+first(words), expectedNginx)
		}
		switch c := p.data[0]; {
		case len(words) == 0 && (c == ';' || c == '{'):
			return d, p.wrong(p.line, "unexpected "+string(c), expectedNginx)
		case c == '}':
			return d, p.wrong(p.line, "unexpected } after "+words[0]+" of line "+strconv.Itoa(d.line),
				"expected ; at the end of "+words[0])
		case c == ';':
			p.data = p.data[1:]
			d.name, d.args = words[0], words[1:]
			return d, nil
		case c == '{':
			p.data = p.data[1:]
			d.name, d.args = words[0], words[1:]
			return d, p.body(d)
		}
		word, err := p.word()
		if err != nil {
			return d, err
		}
		words = append(words, word)
	}
}

// first returns the first of words; "a directive" if there is none.
func first(words []string) string {
	if len(words) == 0 {
		return "a directive"
	}
	return words[0]
}

// body reads the block of d behind its brace.
func (p *nginxParser) body(d *directive) error {
	if p.depth++; p.depth > maxDepth {
		return p.wrong(p.line, "blocks are nested too deep", expectedNginx)
	}
	defer func() { p.depth-- }()
	if strings.HasSuffix(d.name, "_by_lua_block") {
		return p.skipCode(d)
	}
	var err error
	d.block, _, err = p.readBlock(d)
	return err
}

// skipCode skips a block of Lua.
func (p *nginxParser) skipCode(d *directive) error {
	for depth := 1; len(p.data) > 0; {
		c := p.data[0]
		switch {
		case c == '"' || c == '\'':
			if _, err := p.word(); err != nil {
				return err
			}
			continue
		case bytes.HasPrefix(p.data, []byte("--")):
			p.skipLine()
			continue
		case c == '\n':
			p.line++
		case c == '{':
			depth++
		case c == '}':
			depth--
		}
		p.data = p.data[1:]
		if depth == 0 {
			return nil
		}
	}
	return p.wrong(d.line, "the block "+d.name+" that begins here does not end", "write } at its end")
}

// fileMark begins a file in the output of nginx -T.
const fileMark = "# configuration file "

// space skips white space and comments. It returns the name of the file that begins there in
// the output of nginx -T.
func (p *nginxParser) space() (next string, err error) {
	for len(p.data) > 0 {
		switch c := p.data[0]; {
		case c == '\n':
			p.line++
			p.data = p.data[1:]
		case c == '#':
			name, ok := strings.CutPrefix(p.skipLine(), fileMark)
			if name = strings.TrimSuffix(strings.TrimSpace(name), ":"); ok && name != "" && p.depth == 0 {
				return name, nil
			}
		case c == ' ' || c == '\t' || c == '\r':
			p.data = p.data[1:]
		case c < ' ':
			return "", p.wrong(p.line, "is not text", expectedNginx)
		default:
			return "", nil
		}
	}
	return "", nil
}

// skipLine skips the rest of the line, without its end, and returns it.
func (p *nginxParser) skipLine() string {
	end := bytes.IndexByte(p.data, '\n')
	if end < 0 {
		end = len(p.data)
	}
	line := string(p.data[:end])
	p.data = p.data[end:]
	return line
}

// word reads a word, in quotes or not. In a word, ${NAME} has a brace that ends nothing.
func (p *nginxParser) word() (string, error) {
	begin, quote := p.line, byte(0)
	if c := p.data[0]; c == '"' || c == '\'' {
		quote, p.data = c, p.data[1:]
	}
	var b strings.Builder
	for len(p.data) > 0 {
		c := p.data[0]
		switch {
		case c == '\\' && len(p.data) > 1 && (quote != 0 || strings.IndexByte(" ;{}\"'\\", p.data[1]) >= 0):
			if p.data[1] != quote && p.data[1] != '\\' {
				b.WriteByte(c)
			}
			c, p.data = p.data[1], p.data[1:]
		case c == '$' && len(p.data) > 1 && p.data[1] == '{':
			if end := bytes.IndexByte(p.data, '}'); end > 0 && bytes.IndexByte(p.data[:end], '\n') < 0 {
				b.Write(p.data[:end+1])
				p.data = p.data[end+1:]
				continue
			}
		case c == quote && quote != 0:
			p.data = p.data[1:]
			return b.String(), nil
		case quote == 0 && strings.IndexByte(" \t\r\n;{}", c) >= 0:
			return b.String(), nil
		}
		if c == '\n' {
			p.line++
		}
		b.WriteByte(c)
		p.data = p.data[1:]
	}
	if quote != 0 {
		return "", p.wrong(begin, "the text that begins with "+string(quote)+" does not end", expectedNginx)
	}
	return b.String(), nil
}
