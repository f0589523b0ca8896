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
	return slices.DeleteFunc(slices.Clone(block), func(d *directive) bool { return !slices.Contains(names, d.name) })
}

// findDeep returns the directives with one of these names in block and in all blocks in it.
func findDeep(block []*directive, name string) []*directive {
	found := find(block, name)
	for _, d := range block {
		found = append(found, findDeep(d.block, name)...)
	}
	return found
}

// arg returns the argument at i; "" if there is none, or no directive.
func (d *directive) arg(i int) string {
	if d == nil || i < 0 || i >= len(d.args) {
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
// that end at a semicolon or a brace, and comments. A fault ends what there is to read.
type nginxParser struct {
	*document
	data  []byte
	line  int
	depth int
	next  string // the file that begins here, in the output of nginx -T; "" within a file
	// files are the parts of the output of nginx -T, by name.
	files    map[string][]*directive
	first    string          // of files
	included map[string]bool // by name
	count    int             // of directives, with those of included files
}

// parseNginx parses a file, or the output of nginx -T, where included files stand one after
// another and are put where they are included.
func parseNginx(d *document, data []byte) []*directive {
	p := &nginxParser{document: d, data: data, line: 1, files: map[string][]*directive{}, included: map[string]bool{}}
	p.files[""] = p.readBlock(nil)
	for p.next != "" {
		name := p.next
		p.first, p.next = cmp.Or(p.first, name), ""
		p.files[name] = append(p.files[name], p.readBlock(nil)...)
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
	return root
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

// wrong notes a fault, and ends reading.
func (p *nginxParser) wrong(line int, what, expected string) {
	p.document.wrong(line, what, expected)
	p.data = nil
}

// openEnd notes that the block of d does not end.
func (p *nginxParser) openEnd(d *directive) {
	p.wrong(d.line, "the block "+d.name+" that begins here does not end", "write } at its end")
}

// readBlock reads directives up to the end of the block of d; with nil for d, up to the end of the file.
func (p *nginxParser) readBlock(d *directive) (block []*directive) {
	for p.space() {
		switch {
		case p.data[0] != '}':
			block = append(block, p.directive())
		case d == nil:
			p.wrong(p.line, "} ends no block", expectedNginx)
		default:
			p.data = p.data[1:]
			return block
		}
	}
	if d != nil {
		p.openEnd(d)
	}
	return block
}

// directive reads one directive.
func (p *nginxParser) directive() *directive {
	d := &directive{line: p.line}
	if c := p.data[0]; c == ';' || c == '{' {
		p.wrong(p.line, "unexpected "+string(c), expectedNginx)
		return d
	}
	d.name = p.word()
	for p.space() {
		switch p.data[0] {
		case '}':
			p.wrong(p.line, "unexpected } after "+d.name+" of line "+strconv.Itoa(d.line),
				"expected ; at the end of "+d.name)
		case ';':
			p.data = p.data[1:]
			return d
		case '{':
			p.data = p.data[1:]
			p.body(d)
			return d
		default:
			d.args = append(d.args, p.word())
		}
	}
	p.wrong(d.line, "the file ends within "+d.name, expectedNginx)
	return d
}

// body reads the block of d behind its brace.
func (p *nginxParser) body(d *directive) {
	p.depth++
	defer func() { p.depth-- }()
	switch {
	case p.depth > maxDepth:
		p.wrong(p.line, "blocks are nested too deep", expectedNginx)
	case strings.HasSuffix(d.name, "_by_lua_block"):
		p.skipCode(d)
	default:
		d.block = p.readBlock(d)
	}
}

// skipCode skips a block of Lua.
func (p *nginxParser) skipCode(d *directive) {
	for depth := 1; len(p.data) > 0; {
		c := p.data[0]
		switch {
		case c == '"' || c == '\'':
			p.word()
			continue
		case bytes.HasPrefix(p.data, []byte("--")):
			p.skipLine()
			continue
		case c == '{':
			depth++
		case c == '}':
			depth--
		}
		p.skip(1)
		if depth == 0 {
			return
		}
	}
	p.openEnd(d)
}

// fileMark begins a file in the output of nginx -T.
const fileMark = "# configuration file "

// space skips white space and comments, and reports whether more of the file follows.
func (p *nginxParser) space() bool {
	for len(p.data) > 0 && p.next == "" {
		switch c := p.data[0]; {
		case c == '#':
			if name, ok := strings.CutPrefix(p.skipLine(), fileMark); ok && p.depth == 0 {
				p.next = strings.TrimSuffix(strings.TrimSpace(name), ":")
			}
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			p.skip(1)
		case c < ' ':
			p.wrong(p.line, "is not text", expectedNginx)
		default:
			return true
		}
	}
	return false
}

// skipLine skips the rest of the line, without its end, and returns it.
func (p *nginxParser) skipLine() string {
	line, _, _ := bytes.Cut(p.data, []byte("\n"))
	p.data = p.data[len(line):]
	return string(line)
}

// skip skips n bytes.
func (p *nginxParser) skip(n int) {
	p.line += bytes.Count(p.data[:n], []byte("\n"))
	p.data = p.data[n:]
}

// word reads a word, in quotes or not. In a word, ${NAME} has a brace that ends nothing.
func (p *nginxParser) word() string {
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
			return b.String()
		case quote == 0 && strings.IndexByte(" \t\r\n;{}", c) >= 0:
			return b.String()
		}
		b.WriteByte(c)
		p.skip(1)
	}
	if quote != 0 {
		p.wrong(begin, "the text that begins with "+string(quote)+" does not end", expectedNginx)
	}
	return b.String()
}
