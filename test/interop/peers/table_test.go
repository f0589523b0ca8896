package peers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A table is the one of the reference: a row for each behaviour, a column for each peer.
type table struct {
	text   []string   // of the reference, by line
	at     int        // the line of the first row
	heads  []string   // "behaviour" and the peers with their versions
	rows   [][]string // the entries behind the behaviour, in full
	lasted int        // lines of the table
}

// headOfTable begins the table in the reference.
const headOfTable = "| behaviour |"

// sameAsLeft stands for a long entry that is the one on its left.
const sameAsLeft = "the same"

func reference() string { return filepath.Join("..", "..", "..", "proxy", "docs", "decisions.md") }

// readTable reads the table of the reference.
func readTable(t *testing.T) *table {
	t.Helper()
	text, err := os.ReadFile(reference())
	if err != nil {
		t.Fatal(err)
	}
	made := &table{text: strings.Split(string(text), "\n")}
	made.at = slices.IndexFunc(made.text, func(line string) bool { return strings.HasPrefix(line, headOfTable) })
	if made.at < 0 {
		t.Fatalf("%s has no line that begins with %q", reference(), headOfTable)
	}
	for _, line := range made.text[made.at:] {
		if !strings.HasPrefix(line, "|") {
			break
		}
		cells := strings.Split(strings.Trim(line, "| "), "|")
		for i := range cells {
			if cells[i] = strings.TrimSpace(cells[i]); cells[i] == sameAsLeft {
				cells[i] = cells[i-1]
			}
		}
		switch made.lasted++; made.lasted {
		case 1:
			made.heads = cells
		case 2: // the line of dashes
		default:
			made.rows = append(made.rows, cells)
		}
	}
	return made
}

// compare puts what a peer has shown into the table, and returns what the table said otherwise. What
// was not tried keeps its entry.
func (t *table) compare(peer, version string, seen map[string]string) (differences []string) {
	column := slices.IndexFunc(t.heads, func(head string) bool { return strings.HasPrefix(strings.ToLower(head), peer) })
	if column < 0 {
		return []string{"the table has no column for " + peer}
	}
	if name, said, _ := strings.Cut(t.heads[column], " "); version != "" && version != said {
		t.heads[column] = name + " " + version
	}
	for _, b := range behaviours() {
		entry := seen[b.name]
		row := slices.IndexFunc(t.rows, func(row []string) bool { return row[0] == b.name })
		switch {
		case row < 0:
			row = len(t.rows)
			t.rows = append(t.rows, slices.Insert(make([]string, len(t.heads)-1), 0, b.name))
			fallthrough
		case entry != "" && t.rows[row][column] != entry:
			differences = append(differences, fmt.Sprintf("%s, %q: the table says %q; the run saw %q", peer, b.name, t.rows[row][column], entry))
			t.rows[row][column] = entry
		}
	}
	return differences
}

// order gives the rows the order of the behaviours, and returns those that nothing tries.
func (t *table) order() (untried []string) {
	var ordered [][]string
	for _, b := range behaviours() {
		if i := slices.IndexFunc(t.rows, func(row []string) bool { return row[0] == b.name }); i >= 0 {
			ordered = append(ordered, t.rows[i])
		}
	}
	for _, row := range t.rows {
		if !slices.ContainsFunc(behaviours(), func(b behaviour) bool { return b.name == row[0] }) {
			untried = append(untried, fmt.Sprintf("%q: no behaviour of this name is tried", row[0]))
		}
	}
	t.rows = ordered
	return untried
}

// String formats the table. Long entries are written once.
func (t *table) String() string {
	var s strings.Builder
	s.WriteString("| " + strings.Join(t.heads, " | ") + " |\n" + strings.Repeat("|---", len(t.heads)) + "|\n")
	for _, row := range t.rows {
		for i, entry := range row {
			if i > 1 && entry == row[i-1] && len(entry) > len("exactly 50") {
				entry = sameAsLeft
			}
			s.WriteString("| " + entry + " ")
		}
		s.WriteString("|\n")
	}
	return s.String()
}

// write writes the table into the reference.
func (t *table) write() error {
	lines := slices.Replace(t.text, t.at, t.at+t.lasted, strings.TrimSuffix(t.String(), "\n"))
	return os.WriteFile(reference(), []byte(strings.Join(lines, "\n")), 0o600)
}

// TestTable_NamesTheEntryThatIsUntrue runs without any peer.
func TestTable_NamesTheEntryThatIsUntrue(t *testing.T) {
	said := readTable(t)
	if got := strings.Join(slices.Replace(slices.Clone(said.text), said.at, said.at+said.lasted, strings.TrimSuffix(said.String(), "\n")), "\n"); got != strings.Join(said.text, "\n") {
		t.Errorf("the table is not as -write would write it:\n%s", said)
	}
	seen := map[string]string{"allowed": "never", "key in the body": "yes"}
	got := said.compare("traefik", "", seen)
	if len(got) != 1 || !strings.Contains(got[0], `traefik, "allowed"`) || !strings.Contains(got[0], `"never"`) {
		t.Errorf("differences %q; want that of traefik, allowed", got)
	}
	if got := said.order(); len(got) > 0 {
		t.Error(got)
	}
}

// versionPattern finds a version in what a program says of itself.
var versionPattern = regexp.MustCompile(`(?:^|[ /v])(\d+\.\d+)\.\d+`)

// version returns the version of the peer's program without its last number; "" if the program does not tell.
func (p *peer) version(t *testing.T) string {
	t.Helper()
	program, err := find(p.name)
	if err != nil {
		t.Fatal(err)
	}
	said, err := exec.Command(program, p.tellVersion).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v", program, p.tellVersion, err)
	}
	if found := versionPattern.FindSubmatch(said); found != nil {
		return string(found[1])
	}
	return ""
}
