//! Drop, rename and swap: changes of names, which are the coordinator's.
//!
//! Protocol: the coordinator does each at one instant. After a drop the client tells the other nodes to
//! forget what the coordinator has dropped, and then the coordinator that they have. Some of it another
//! client may have dropped, which ended too early to tell them. A client that makes a table tells them, too.

use farsight_fabric::Connection;
use farsight_protocol::{ControlRequest, TableId, TableInfo};

use super::Nodes;
use crate::CatalogueError;

/// Rounds of telling the other nodes at most: a coordinator may lie about what is left.
const ROUNDS_MAX: usize = 64;

impl<C: Connection> Nodes<C> {
    /// Ends the table of this name at every node.
    pub(crate) fn drop_table(&self, name: &str) -> Result<(), CatalogueError> {
        self.check_whole("dropped")?;
        self.epochs()?;
        let dropped = self.ask::<()>(0, &ControlRequest::DropTable(name.to_owned()));
        let told = self.tell_dropped();
        dropped.and(told)?;
        self.let_go_of_dropped(self.heard_name_changes()?)
    }

    /// Gives the table called `from` the name `to`.
    pub(crate) fn rename_table(&self, from: &str, to: &str) -> Result<(), CatalogueError> {
        self.check_whole("renamed")?;
        self.epochs()?;
        self.ask::<()>(0, &ControlRequest::RenameTable { from: from.to_owned(), to: to.to_owned() })?;
        self.spread(&[to])
    }

    /// Lets two tables exchange their names.
    pub(crate) fn swap_tables(&self, first: &str, second: &str) -> Result<(), CatalogueError> {
        self.check_whole("renamed")?;
        self.epochs()?;
        self.ask::<()>(
            0,
            &ControlRequest::SwapTables { first: first.to_owned(), second: second.to_owned() },
        )?;
        self.spread(&[first, second])
    }

    /// Has the other nodes hear what tables with replicas are called now. One of them is the coordinator when
    /// this one is lost. A name of which it has not heard leads nowhere then, or where it led before.
    fn spread(&self, names: &[&str]) -> Result<(), CatalogueError> {
        if self.count() == 1 {
            return Ok(());
        }
        for name in names {
            let info: TableInfo = self.ask(0, &ControlRequest::OpenTable((*name).to_owned()))?;
            if info.definition.replicas() > 1 {
                self.adopt(info)?;
            }
        }
        Ok(())
    }

    /// Tells the other nodes of a pool what the coordinator has dropped and they may not know.
    pub(crate) fn tell_dropped(&self) -> Result<(), CatalogueError> {
        if self.count() == 1 {
            return Ok(());
        }
        for _ in 0..ROUNDS_MAX {
            let dropped: Vec<TableId> = self.ask(0, &ControlRequest::DroppedTables)?;
            if dropped.is_empty() {
                break;
            }
            let told = ControlRequest::ForgetTables(dropped);
            (1..self.count()).try_for_each(|node| self.ask::<()>(node, &told))?;
            self.ask::<()>(0, &told)?;
        }
        Ok(())
    }
}
