//! Documents: their keys, and reading and changing them.

use flotta_arm::{
    error::ArmError,
    path::{FleetRef, Kind},
};
use flotta_model::{ClusterId, Name};
use flotta_store::{Batch, Collection, Delete, Document, Expect, Put, StoreError};
use serde::{Serialize, de::DeserializeOwned};
use uuid::Uuid;

use crate::Call;

/// A stored thing, and the document it is in.
pub struct Stored<T> {
    /// The thing.
    pub value: T,
    /// Its document.
    pub document: Document,
}

/// The key of a child of a fleet.
pub fn child_key(fleet: &FleetRef, kind: Kind, name: &Name) -> String {
    fleet.child_id(kind, name).to_ascii_lowercase()
}

/// The parent under which the fleets of a resource group are listed.
pub fn group_key(subscription: &str, resource_group: &str) -> String {
    format!("/subscriptions/{subscription}/resourcegroups/{resource_group}").to_ascii_lowercase()
}

/// The key of the document that says which fleet a cluster is in.
pub fn joined_key(cluster: &ClusterId) -> String {
    format!("joined{}", cluster.key())
}

impl Call {
    /// One stored thing.
    pub async fn find<T: DeserializeOwned>(
        &self,
        collection: Collection,
        key: &str,
    ) -> Result<Option<Stored<T>>, ArmError> {
        let document = self.app.store.get(collection, key).await.map_err(|error| internal(&error))?;
        document.map(read).transpose()
    }

    /// Everything of a kind below a parent.
    pub async fn all<T: DeserializeOwned>(
        &self,
        collection: Collection,
        parent: &str,
    ) -> Result<Vec<Stored<T>>, ArmError> {
        let mut found = Vec::new();
        let mut after = None;
        loop {
            let page = self.app.store.list(collection, parent, after, 1000).await.map_err(|error| internal(&error))?;
            let Some(last) = page.last() else { return Ok(found) };
            after = Some(last.serial);
            for document in page {
                found.push(read(document)?);
            }
        }
    }

    /// One page of a kind below a parent, and whether there is more.
    pub async fn page<T: DeserializeOwned>(
        &self,
        collection: Collection,
        parent: &str,
        page: flotta_arm::paging::Page,
    ) -> Result<(Vec<Stored<T>>, bool), ArmError> {
        let documents = self.app.store.list(collection, parent, page.after, page.top + 1).await;
        let mut documents = documents.map_err(|error| internal(&error))?;
        let more = documents.len() > page.top as usize;
        documents.truncate(page.top as usize);
        let read: Result<Vec<Stored<T>>, ArmError> = documents.into_iter().map(read).collect();
        Ok((read?, more))
    }

    /// Changes documents, together or not at all.
    pub async fn commit(&self, batch: Batch) -> Result<(), ArmError> {
        self.app.store.commit(batch).await.map_err(|error| refused(&error))
    }

    /// The link to the page after a document.
    pub fn next_link(&self, serial: u64) -> String {
        flotta_arm::paging::next_link(&self.base, &self.path, &self.query, serial)
    }
}

fn read<T: DeserializeOwned>(document: Document) -> Result<Stored<T>, ArmError> {
    match serde_json::from_str(&document.body) {
        Ok(value) => Ok(Stored { value, document }),
        Err(error) => {
            tracing::error!(collection = ?document.collection, key = document.key, %error, "a document cannot be read");
            Err(ArmError::internal())
        }
    }
}

/// A document to put: new, or in place of the one that was read.
pub fn put(
    collection: Collection,
    key: String,
    parent: String,
    value: &impl Serialize,
    before: Option<&Document>,
) -> Result<Put, ArmError> {
    let body = serde_json::to_string(value).map_err(|error| {
        tracing::error!(%error, "a document cannot be written");
        ArmError::internal()
    })?;
    let expect = match before {
        Some(document) => Expect::Etag(document.etag.clone()),
        None => Expect::Absent,
    };
    Ok(Put { collection, key, parent, body, etag: Uuid::now_v7().to_string(), expect })
}

/// A document to delete, as it was read.
pub fn delete(document: &Document) -> Delete {
    let Document { collection, key, etag, .. } = document;
    Delete { collection: *collection, key: key.clone(), expect: Expect::Etag(etag.clone()) }
}

/// What a failed commit means to a client.
pub fn refused(error: &StoreError) -> ArmError {
    match error {
        StoreError::Unexpected { .. } | StoreError::JournalMoved { .. } => {
            ArmError::conflict("the resource was changed by another request at the same time; read it again and repeat")
        }
        StoreError::Failed(_) | StoreError::Invalid(_) => internal(error),
    }
}

/// Storage failed: the log has the details.
pub fn internal(error: &StoreError) -> ArmError {
    tracing::error!(%error, "storage failed");
    ArmError::internal()
}

/// A batch of puts alone.
pub fn puts(puts: Vec<Put>) -> Batch {
    Batch { puts, ..Batch::default() }
}
