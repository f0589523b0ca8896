package golden

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weir-proxy/weir/test/rounds"
)

const (
	// Seeds is how many records of each file have a hash; ./test/run makes some of them.
	Seeds = 33
	some  = 1
)

// folder is where the configurations are that records begin with, from a package two folders deep.
const folder = "../../proxy/config/testdata/"

// Real is the seeds of records that are made in real time: few, and of no configuration that has requests wait.
const Real = 2

// Compare makes so many records of each good configuration and compares their hashes with those of testdata/NAME.txt. To see what has
// changed, run it with WEIR_GOLDEN_TEXTS=FOLDER before and after the change, and compare the two folders; WEIR_GOLDEN=write
// writes the hashes.
func Compare(t *testing.T, name string, most int, record func(t *testing.T, file string, seed uint64) string) {
	files, err := filepath.Glob(folder + "good-*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no configurations in %s: %v", folder, err)
	}
	for name, value := range map[string]string{"SET": "set", "NUMBER": "7", "EMPTY": ""} { // what configurations refer to
		t.Setenv(name, value)
	}
	path := filepath.Join("../../test/golden/testdata", name+".txt")
	hashes := read(t, path)
	written, count := hashes, min(rounds.Of(some), most)
	if os.Getenv("WEIR_GOLDEN") == "write" {
		written, count = map[string]string{}, most
	}
	for _, file := range files {
		if most == Real && strings.HasSuffix(file, "wait.yaml") || strings.HasSuffix(file, "waits.yaml") {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			for seed := range uint64(count) {
				one := fmt.Sprint(filepath.Base(file), " ", seed)
				text := record(t, file, seed)
				if to := os.Getenv("WEIR_GOLDEN_TEXTS"); to != "" {
					_ = os.MkdirAll(to, 0o700) // or writing fails
					if err := os.WriteFile(filepath.Join(to, strings.ReplaceAll(one, " ", ".")), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				hash := fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:16]
				if len(written) == 0 || os.Getenv("WEIR_GOLDEN") == "write" {
					written[one] = hash
				} else if hashes[one] != hash {
					t.Errorf("%s: something else happens than before; WEIR_GOLDEN_TEXTS shows it", one)
				}
			}
		})
	}
	if os.Getenv("WEIR_GOLDEN") == "write" {
		write(t, path, written)
	}
}

// read reads the hashes of a file, one a line behind the name of its record.
func read(t *testing.T, path string) map[string]string {
	t.Helper()
	hashes := map[string]string{}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if i := strings.LastIndexByte(lines.Text(), ' '); i > 0 {
			hashes[lines.Text()[:i]] = lines.Text()[i+1:]
		}
	}
	return hashes
}

func write(t *testing.T, path string, hashes map[string]string) {
	t.Helper()
	var lines []string
	for one, hash := range hashes {
		lines = append(lines, one+" "+hash+"\n")
	}
	slices.Sort(lines)
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o644); err != nil {
		t.Fatal(err)
	}
}
